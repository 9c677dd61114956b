"""Credentials that never were any, made when the tests run, and texts that only look like them.

Everything is put together from parts, so that no scanner takes this repository for a leak.
"""

from __future__ import annotations

import base64
import json
import random
import string
import zlib
from dataclasses import dataclass

LETTERS = string.ascii_letters
ALNUM = string.digits + string.ascii_uppercase + string.ascii_lowercase
URL_SAFE = ALNUM + "-_"
HEX = "0123456789abcdef"
BASE32 = string.ascii_uppercase + "234567"
BECH32 = "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L"
UPPER = string.ascii_uppercase + string.digits
PW = "pass" + "word"

_random = random.Random(20260401)


@dataclass(frozen=True, slots=True)
class Secret:
    """A text with one credential in it: which rule names it, and what stands before and after it."""

    rule: str
    value: str
    before: str = ""
    after: str = ""

    @property
    def text(self) -> str:
        """All of it."""
        return self.before + self.value + self.after


def pick(count: int, alphabet: str = ALNUM) -> str:
    """``count`` random characters, the same in every run."""
    return "".join(_random.choices(alphabet, k=count))


def checksummed(prefix: str) -> str:
    """A token as GitHub and npm make them: 30 characters and their CRC32 in base 62."""
    payload = pick(30)
    number, digits = zlib.crc32(payload.encode()), ""
    while number:
        number, digit = divmod(number, 62)
        digits = ALNUM[digit] + digits
    return prefix + payload + digits.rjust(6, "0")


def base64_json(value: object) -> str:
    """A part of a JSON web token."""
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def web_token() -> str:
    """A JSON web token with a signature that signs nothing."""
    return ".".join(
        [base64_json({"alg": "HS256", "typ": "JWT"}), base64_json({"sub": "bob", "n": 7}), pick(43, URL_SAFE)]
    )


def pem(kind: str, newline: str = "\n") -> str:
    """A private key's block, with noise for a key."""
    lines = [
        f"-----BEGIN {kind}-----",
        *(pick(64, ALNUM + "+/") for _ in range(5)),
        pick(20) + "==",
        f"-----END {kind}-----",
    ]
    return newline.join(lines)


def basic(user: str, secret: str) -> str:
    """The credentials of an HTTP basic authorization."""
    return base64.b64encode(f"{user}:{secret}".encode()).decode()


TOKENS = [
    Secret("aws-access-key-id", "AK" + "IA" + pick(16, BASE32), "key id ", "."),
    Secret("aws-secret-access-key", pick(40, ALNUM + "/+"), "aws_secret_access_key = "),
    Secret("aws-secret-access-key", pick(40, ALNUM + "/+"), '"SecretAccessKey": "', '",'),
    Secret("google-api-key", "AI" + "za" + pick(35, URL_SAFE), "maps: "),
    Secret("google-oauth-secret", "GOC" + "SPX-" + pick(28, URL_SAFE)),
    Secret("google-oauth-token", "ya" + "29." + pick(120, URL_SAFE)),
    Secret(
        "azure-account-key", pick(86, ALNUM + "+/") + "==", "AccountName=acme;Account" + "Key=", ";EndpointSuffix=x"
    ),
    Secret("azure-shared-key", pick(43, ALNUM + "+/") + "=", "Endpoint=sb://acme;SharedAccess" + "Key="),
    Secret("azure-client-secret", "aB1" + "8Q~" + pick(34, ALNUM + "_.-"), "client: "),
    Secret("azure-sas-signature", pick(43) + "%3D", "https://acme.blob.core.windows.net/x?sv=2024&sig="),
    Secret("alibaba-access-key-id", "LT" + "AI" + pick(20)),
    Secret("digitalocean-token", "dop" + "_v1_" + pick(64, HEX)),
    Secret("databricks-token", "da" + "pi" + pick(32, HEX) + "-2"),
    Secret("planetscale-token", "pscale" + "_tkn_" + pick(43, URL_SAFE)),
    Secret("supabase-token", "sb" + "p_" + pick(40, HEX)),
    Secret("fly-token", "fm" + "2_" + pick(200, ALNUM + "+/")),
    Secret("heroku-token", "HR" + "KU-" + pick(60, URL_SAFE)),
    *(Secret("github-token", checksummed(f"gh{kind}_"), "push with ", " please") for kind in "pousr"),
    Secret("github-token", "gh" + "r_" + pick(76)),
    Secret("github-fine-grained-token", "github" + "_pat_" + pick(22) + "_" + pick(59)),
    Secret("gitlab-token", "gl" + "pat-" + pick(20, URL_SAFE)),
    Secret("npm-token", checksummed("np" + "m_"), "//registry.npmjs.org/:_auth="),
    Secret("pypi-token", "py" + "pi-AgEIcHlwaS5vcmc" + pick(120, URL_SAFE)),
    Secret("rubygems-token", "ruby" + "gems_" + pick(48, HEX)),
    Secret("docker-token", "dckr" + "_pat_" + pick(27, URL_SAFE)),
    Secret("terraform-token", pick(14) + ".atlas" + "v1." + pick(67, URL_SAFE)),
    Secret("pulumi-token", "pu" + "l-" + pick(40, HEX)),
    Secret("postman-key", "PM" + "AK-" + pick(24, HEX) + "-" + pick(34, HEX)),
    Secret("anthropic-key", "sk-" + "ant-api03-" + pick(93, URL_SAFE) + "AA"),
    Secret("anthropic-key", "sk-" + "ant-admin01-" + pick(93, URL_SAFE) + "AA", "admin key: `", "`"),
    Secret("openai-key", "sk-" + "proj-" + pick(74, URL_SAFE) + "T3BlbkFJ" + pick(74, URL_SAFE)),
    Secret("openai-key", "sk" + "-" + pick(48), "export OPENAI=", "\n"),
    Secret("openai-key", "sk" + "-or-v1-" + pick(64, HEX)),
    Secret("hugging-face-token", "h" + "f_" + pick(34, LETTERS), "(", ")"),
    Secret("groq-key", "gs" + "k_" + pick(52)),
    Secret("xai-key", "xa" + "i-" + pick(80)),
    Secret("perplexity-key", "pp" + "lx-" + pick(48)),
    Secret("replicate-token", "r" + "8_" + pick(37)),
    Secret("langsmith-key", "lsv2" + "_pt_" + pick(32, HEX) + "_" + pick(10, HEX)),
    Secret("pinecone-key", "pc" + "sk_" + pick(68)),
    Secret("slack-token", "xo" + "xb-" + "-".join([pick(12, "123456789"), pick(13, "123456789"), pick(24)])),
    Secret("slack-token", "xa" + "pp-1-A" + pick(10, UPPER) + "-" + pick(13, "123456789") + "-" + pick(64, HEX)),
    Secret(
        "slack-webhook", f"T{pick(8, UPPER)}/B{pick(8, UPPER)}/{pick(24)}", "https://hooks.slack" + ".com/services/"
    ),
    Secret("stripe-key", "sk" + "_live_" + pick(24), "stripe ", ", see docs"),
    Secret("stripe-key", "rk" + "_live_" + pick(99)),
    Secret("stripe-webhook-secret", "wh" + "sec_" + pick(32)),
    Secret("sendgrid-key", "S" + "G." + pick(22, URL_SAFE) + "." + pick(43, URL_SAFE)),
    Secret("twilio-key", "S" + "K" + pick(32, HEX)),
    Secret("mailgun-key", "ke" + "y-" + pick(32, HEX)),
    Secret("mailchimp-key", pick(32, HEX) + "-us" + "14"),
    Secret("brevo-key", "xkey" + "sib-" + pick(64, HEX) + "-" + pick(16)),
    Secret("shopify-token", "shp" + "at_" + pick(32, HEX)),
    Secret("square-token", "EA" + "AAE" + pick(59, URL_SAFE)),
    Secret("telegram-bot-token", "123987654" + ":A" + "A" + pick(33, URL_SAFE), "bot "),
    Secret(
        "discord-bot-token",
        base64_json(100000000000000000 + 81723987123987).rstrip("=") + "." + pick(6) + "." + pick(38),
    ),
    Secret("discord-webhook", pick(68, URL_SAFE), "https://discord.com/api/" + "webhooks/123456789012345678/"),
    Secret("linear-key", "lin" + "_api_" + pick(40)),
    Secret("notion-token", "nt" + "n_" + pick(46)),
    Secret("vault-token", "hv" + "s." + pick(95, URL_SAFE)),
    Secret("age-secret-key", "AGE-SECRET" + "-KEY-1" + pick(58, BECH32)),
    Secret("1password-token", "ops" + "_eyJ" + pick(400)),
    Secret("1password-secret-key", "A" + "3-" + "-".join(pick(n, UPPER) for n in (6, 6, 5, 5, 5, 5))),
    Secret("atlassian-token", "ATA" + "TT3" + pick(186, URL_SAFE)),
    Secret("doppler-token", "d" + "p.pt." + pick(43)),
    Secret("grafana-token", "gl" + "sa_" + pick(32) + "_" + pick(8, HEX)),
    Secret("newrelic-key", "NR" + "AK-" + pick(27, UPPER)),
    Secret("sentry-token", "sn" + "trys_" + pick(160)),
    Secret("posthog-key", "ph" + "x_" + pick(43)),
    Secret("figma-token", "fi" + "gd_" + pick(40, URL_SAFE)),
    Secret("airtable-token", "pa" + "t" + pick(14) + "." + pick(64, HEX)),
    Secret("tailscale-key", "ts" + "key-auth-" + pick(17) + "-" + pick(32)),
    Secret("dynatrace-token", "dt0" + "c01." + pick(24, UPPER) + "." + pick(64, UPPER)),
]

SHAPES = [
    Secret("private-key", pem("RSA " + "PRIVATE KEY"), "the key:\n", "\nkeep it\n"),
    Secret("private-key", pem("OPENSSH " + "PRIVATE KEY")),
    Secret("private-key", pem("PRIVATE" + " KEY", newline="\\n"), '{"type": "service_account", "private_key": "', '"}'),
    Secret("private-key", pem("PRIVATE" + " KEY").rpartition("\n")[0].rstrip("="), "cut off: "),
    Secret("json-web-token", web_token(), "session "),
    Secret("connection-string", "s3cr3t", "postgres" + "://app:", "@db.acme.internal:5432/prod"),
    Secret("connection-string", "Xy7pQ2kd", "mongodb+srv" + "://svc:", "@cluster0.acme.net/?w=majority"),
    Secret("connection-string", "kd8-Lq2", "rediss" + "://:", "@cache:6379/0"),
    Secret("connection-string", "swordfish", "mysql" + "://root:", "@10.0.0.3/app"),
    Secret("connection-string", "p%40ss%2Fw0rd", "clone https" + "://bob:", "@git.acme.com/repo.git"),
    Secret("bearer-token", pick(40, URL_SAFE + "."), "Authorization: Bearer "),
    Secret("basic-auth", basic("bob", "Zebra-9921-x"), "Authorization: Basic "),
]

NAMED = [
    Secret("password", "hunter2" * 2, f"the {PW} is "),
    Secret("password", "Tr0ub4dor&3", f"My admin {PW} is: ", ", keep it safe."),
    Secret("password", "Sunshine-2024!", f"The wifi {PW} for the office is "),
    Secret("password", "swordfish", f"his {PW} is '", "'"),
    Secret("password", "Zx81spectrum", f"I set the {PW} to ", "."),
    Secret("password", "Blue-Kite-77!", f"{PW} for the router: "),
    Secret("password", "correct-horse-battery-9", f"{PW}: "),
    Secret("password", "S3cr3t!pass", f"{PW}="),
    Secret("password", "swordfish", f"{PW} = '", "'"),
    Secret("password", "p@ssw0rd!", f'{{"user": "bob", "{PW}": "', '"}'),
    Secret("password", "p4ssw0rd9", f'{{\\"{PW}\\": \\"', '\\"}'),
    Secret("password", "xk29fjw0q", f"DB_{PW.upper()}="),
    Secret("password", "swordfish", f"export DB_{PW.upper()}="),
    Secret("password", "Zebra9921", f"**{PW.title()}:** "),
    Secret("password", "9dj2kfi3", "db_" + "pass: "),
    Secret("password", "Winter2024!", "login bob, " + "pw: "),
    Secret("password", "qwerty123!", "pass" + "wd: "),
    Secret("password", "84629173", "pass" + "code: "),
    Secret("password", "Str0ng!Pa5s", f"Server=db;User Id=sa;{PW.title()}=", ";Encrypt=true"),
    Secret("password", "swordfish", f"<{PW}>", f"</{PW}>"),
    Secret("password", "Zebra9921", f"settings['{PW}'] = '", "'"),
    Secret("password", "S3cr3tPw9", f"mysql -u root --{PW} ", " app"),
    Secret("password", "S3cr3tPw9", "curl -u admin:", " https://acme.com"),
    Secret("assigned-key", pick(32, HEX), "api" + "_key = "),
    Secret("assigned-key", pick(32), '"api' + 'Key": "', '"'),
    Secret("assigned-key", pick(40, URL_SAFE), "client" + "_secret: "),
    Secret("assigned-key", pick(40, HEX), "github " + "token: "),
    Secret("assigned-key", "django-insecure-" + pick(50), "SECRET" + "_KEY = '", "'"),
    Secret("assigned-key", pick(36), "the api " + "key is "),
    Secret("assigned-key", pick(40, HEX), "api " + "token for prod: "),
    Secret("assigned-key", "gh" + "p_" + pick(36), "GITHUB" + "_TOKEN="),
    Secret("rest", pick(24), "[redacted:anthropic-key]"),
]

SECRETS = TOKENS + SHAPES + NAMED

# What the gate lets pass although it is a credential: nothing but its meaning tells it from prose.
MISSED = [
    Secret("password", "4821", "the PIN is "),
    Secret("password", "Zebra_9921", f"the root {PW} was changed to "),
    Secret("password", "correct horse battery staple", "pass" + "phrase: "),
    Secret("password", "S3cr3tPw9", "mysql -u root -p"),
]

LOOK_ALIKES = [
    "sk-your-key-here",
    "sk-" + "x" * 40,
    "sk-...",
    "sk-learn-contrib-2024-edition-for-beginners",
    "task-force-2024-notes-final",
    "gh" + "p_" + "x" * 36,
    "gh" + "p_" + pick(30) + "000000",
    "np" + "m_" + pick(30) + "000000",
    "hf_model_name",
    "hf_hub_download(repo_id)",
    "AKIAIOSFODNN7EXAMPLE",
    "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "xox" + "b-your-token-here-please",
    "glpat-<your token here>",
    f"{PW}: ********",
    f"{PW}: <{PW}>",
    f"{PW}=${{DB_PASSWORD}}",
    f"{PW}: $DB_PASSWORD",
    f"{PW}: changeme",
    f"{PW}: example123",
    f"{PW}: {{{{ vault_db }}}}",
    f"{PW}: !secret db_2024",
    f"{PW}: ENC[AES256_GCM,data:8b0d]",
    f"{PW}: [redacted:{PW}]",
    f'{PW}: ""',
    f"{PW}: secret:db-prod-2024",
    f"{PW}: op://vault/db/field1",
    "token: secret:stripe-live-2024",
    "use secret:a8f5f167f44f4964e6c998dee827110c",
    f"{PW} = os.environ['DB_PW1']",
    f"{PW} = getpass.getpass()",
    f"{PW} = config.db1.value",
    f"def login(user: str, {PW}: str) -> None:",
    f"the {PW} is stored in the vault",
    f"the {PW} is 12 characters long",
    f"the {PW} is base64-encoded",
    f"the {PW} is in 1Password",
    f"{PW} must be at least 12 characters",
    f"{PW}: required",
    f"{PW}: min-8-chars",
    f"{PW} reset ticket: JIRA-12345",
    f"{PW}: see LastPass",
    f"the {PW} was last changed on 2026-10-01",
    f"{PW} expires: 2026-12-31",
    f"{PW} reset link sent to bob2@acme.com",
    "passport: C01X00T47",
    f"reset your {PW} at https://acme.com/reset?id=12345",
    f"forgot {PW}: https://acme.com/a1",
    "bypass=true2024",
    "compass: N45W120",
    "pass: 12 of 13 tests",
    f"her {PW} hint is the dog's name",
    f"{PW}-less login since 2024",
    f"{PW} policy is ISO-27001",
    "550e8400-e29b-41d4-a716-446655440000",
    "request token: 550e8400-e29b-41d4-a716-446655440000",
    f"commit {pick(40, HEX)}",
    "sha256:" + pick(64, HEX),
    "data:image/png;base64,iVBORw0KGgo" + pick(400, ALNUM + "+/"),
    "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQ" + pick(300) + " bob@laptop",
    "-----BEGIN PUBLIC KEY-----\n" + pick(64) + "\n-----END PUBLIC KEY-----",
    "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----",
    "eyJ is how a web token starts",
    "cursor: eyJpZCI6MTIzfQ==",
    "eyJ" + pick(20) + "." + pick(20) + "." + pick(43),
    "next_page_token: CAUQAA" + pick(30),
    "postgres://user:password@localhost/db",
    "postgres://localhost:5432/db",
    "postgres://app:${PW}@db/app",
    "amqp://guest:guest@localhost",
    "redis://:<pw>@h",
    "https://acme.com:8080/path@v2",
    "git@github.com:acme/repo.git",
    "https://unpkg.com/react@18.2.0/umd:x",
    "docker run -u 1000:1000 acme/app",
    "Authorization: Bearer $TOKEN",
    "Authorization: Bearer <token>",
    "Basic understanding of HTTP",
    "the bearer of this letter is authorised-to-enter-2024",
    "max_tokens: 4096",
    "token budget: 128000",
    "the token is expired",
    "api_key: YOUR_API_KEY_2024_HERE",
    "api_key=os.getenv('OPENAI_API_KEY_2')",
    "the secret to 10x growth is focus",
    "the api key is in the vault under acme/prod-2024",
    "token: ${{ secrets.GITHUB_TOKEN_2024 }}",
    "secret: docs/how-to-rotate-2024.md",
    "arn:aws:secretsmanager:eu-west-1:123456789012:secret:prod-db-a1b2c3",
    "order 4111-1111 for Bob",
    "call +49 170 1234567",
    "build v2.14.3-rc1+g33a64df",
]

# What the gate refuses although it is none: a sentence about code in the shape of an assignment.
FALSE_ALARMS = [f"set {PW}=hash2password in the call", "token = parser2TokenStream9Value"]
