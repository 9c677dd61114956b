"""The kinds of credential memfiles knows: one rule a kind, specific ones first.

The rules this file keeps:

- Every match of a rule holds one of its anchors, so that a text without anchors passes without a pattern being
  run. A match of a rule that is not ``folded`` also holds 16 unbroken characters of ``UNBROKEN``, as tokens do.
- No pattern reads a character more than a bounded number of times, so that a hostile text costs no more than a
  long one: a pattern starts at its anchor or at the first character of a token, and every repetition is bounded,
  possessive, or ends at a character that it cannot match itself.

- No match is longer than ``REACH`` characters, so that a change needs to look no farther around itself. Of a longer
  private key that much is found.

Formats: the vendors' own documentation.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from memfiles.secrets import judges as judge

Judge = Callable[[str], bool]
REACH = 64 * 1024
REACH_OF_ANCHOR = 64  # characters from the start of a private key's match to the end of its anchor
UNBROKEN = r"[A-Za-z0-9_./+=~%-]{16}"
_START = r"(?<![A-Za-z0-9])"
_END = r"(?![A-Za-z0-9])"


class Rule(Struct, frozen=True):
    """One kind of credential: its anchors, its pattern, and the judge that accepts or rejects a match.

    The credential is the match of the pattern's only group, or the whole match without a group; ``judge``
    gets that text. A ``folded`` rule ignores case: its anchors and its pattern are in lower case.
    """

    name: str
    anchors: tuple[str, ...]
    pattern: str
    judge: Judge = judge.random_token
    folded: bool = False


def _token(name: str, prefixes: str, body: str, judge: Judge = judge.random_token) -> Rule:
    """A rule for tokens that start with one of ``prefixes`` (separated by spaces) and go on with ``body``."""
    anchors = tuple(prefixes.split())
    starts = "|".join(prefix.replace(".", r"\.") for prefix in anchors)
    return Rule(name, anchors, f"{_START}(?:{starts}){body}{_END}", judge)


# Values assigned to a name. A name is weaker evidence than a token's prefix, so each notation has its own rule; the
# more common the notation is in prose and code, the stricter the judge.
_PASSWORD = r"(?:pass(?:word|wd|phrase|code|wort)|pass(?<![a-z]pass)(?=[\"'`*\s]{0,3}[:=])|pwd|pw(?<![a-z]pw)(?=[:=]))"
_KEY = (  # secret:name is a reference, and a page's or a request's token is not a credential
    r"(?:api[_ -]?key|secret[_ -]?key|access[_ -]?key|auth[_ -]?key|private[_ -]?key|signing[_ -]?key|credential"
    r"|encryption[_ -]?key|master[_ -]?key|service[_ -]?key|shared[_ -]?key|secret(?!:[\w.-])"
    r"|token(?<!next.token)(?<!nexttoken)(?<!page.token)(?<!pagetoken)(?<!sync.token)(?<![cx]srf.token))"
)
_CLOSED = r"[\"'`*_\\]{0,4}(?:(?<=[\"'`])\])?"
_GIVEN = r"[ \t]{0,8}(?::[ \t]?str(?:ing)?[ \t]?=|:=|=>|=(?!=)|:(?!:))[ \t*]{0,8}"
_TOLD = r"s?\b[^.\n:=;\]\"'`]{0,48}?\b(?:is|was|be|to|now)\b(?: now| still| just)?[ \t]?:?[ \t*]{1,4}"
_MIXED = r"(?=\S{0,40}[0-9!@#$%^&*])"
_MEANT = r"[ \t](?:for|to|of|on|at|in)\b[^\n:=]{1,48}?[:=][ \t*]{0,4}"
_QUOTED = r"\\?[\"'`]([^\s\"'`\\]{6,4000})\\?[\"'`]"
_BARE = r"\\?[\"'`]?([^\s\"'`<>;]{3,4000}[^\s\"'`<>;.,:)\]}\\])"


def _folded(name: str, anchors: str, pattern: str, judge: Judge = judge.random_token) -> Rule:
    """A rule that ignores case, with ``anchors`` separated by spaces."""
    return Rule(name, tuple(anchors.split()), pattern, judge, folded=True)


RULES: tuple[Rule, ...] = (
    # clouds
    _token("aws-access-key-id", "AKIA ASIA ABIA ACCA", r"[A-Z2-7]{16}"),
    _folded(
        "aws-secret-access-key",
        "secret",
        r"(?:secret[_-]?access[_-]?key|aws[_-]?secret(?:[_-]?key)?|secret key)(?:[\"'`*\s:=>]|is\b){1,8}"
        r"([a-z0-9/+]{40})(?![a-z0-9/+=])",
    ),
    _token("google-api-key", "AIza", r"[\w-]{35}"),
    _token("google-oauth-secret", "GOCSPX-", r"[\w-]{28}"),
    _token("google-oauth-token", "ya29.", r"[\w-]{30,1000}+"),
    Rule("azure-account-key", ("AccountKey=",), r"AccountKey=([A-Za-z0-9+/]{86}==)"),
    Rule("azure-shared-key", ("AccessKey=",), r"SharedAccessKey=([A-Za-z0-9+/]{43}=)"),
    Rule("azure-client-secret", ("Q~",), r"(?<![\w~.-])[\w~.]{3}\dQ~[\w~.-]{31,34}(?![\w~.-])"),
    Rule("azure-sas-signature", ("sig=",), r"[?&;]sig=([A-Za-z0-9%/+]{43,60}(?:%3[Dd]|=))"),
    _token("alibaba-access-key-id", "LTAI", r"[A-Za-z0-9]{16,20}"),
    _token("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", r"[a-f0-9]{64}"),
    _token("databricks-token", "dapi", r"[a-f0-9]{32}(?:-\d)?"),
    _token("planetscale-token", "pscale_tkn_ pscale_pw_ pscale_oauth_", r"[\w.=-]{32,64}"),
    _token("supabase-token", "sbp_ sb_secret_", r"[\w-]{31,64}"),
    _token("fly-token", "fm2_", r"[A-Za-z0-9+/=_-]{80,2000}+"),
    _token("heroku-token", "HRKU-", r"[\w-]{36,80}"),
    # code and packages
    _token("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", r"[A-Za-z0-9]{36}", judge.checksummed_token),
    Rule(  # newer and longer ones, whose checksum is not published
        "github-token",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
        rf"(?<![\w-])gh[pousr]_(?:[A-Za-z0-9]{{37,251}}|[\w.-]{{100,600}}+){_END}",
    ),
    _token("github-fine-grained-token", "github_pat_", r"[A-Za-z0-9]{22}_[A-Za-z0-9]{59}"),
    _token("gitlab-token", "glpat- gldt- glrt- glcbt- glptt- glft- gloas- glsoat-", r"[\w.-]{20,300}+"),
    _token("npm-token", "npm_", r"[A-Za-z0-9]{36}", judge.checksummed_token),
    _token("pypi-token", "pypi-AgE", r"[\w-]{50,1000}+"),
    _token("rubygems-token", "rubygems_", r"[a-f0-9]{48}"),
    _token("docker-token", "dckr_pat_ dckr_oat_", r"[\w-]{27,40}"),
    Rule("terraform-token", (".atlasv1.",), rf"{_START}[A-Za-z0-9]{{14}}\.atlasv1\.[\w=-]{{60,70}}"),
    _token("pulumi-token", "pul-", r"[a-f0-9]{40}"),
    _token("postman-key", "PMAK-", r"[a-f0-9]{24}-[a-f0-9]{34}"),
    # models
    _token("anthropic-key", "sk-ant-", r"[\w-]{24,200}", judge.mixed_token),
    _token("openai-key", "sk-", r"(?!ant-)[\w-]{20,250}", judge.mixed_token),
    _token("hugging-face-token", "hf_ api_org_", r"[A-Za-z0-9]{34,40}"),
    _token("groq-key", "gsk_", r"[A-Za-z0-9]{48,56}"),
    _token("xai-key", "xai-", r"[A-Za-z0-9]{60,90}"),
    _token("perplexity-key", "pplx-", r"[A-Za-z0-9]{40,60}"),
    _token("replicate-token", "r8_", r"[A-Za-z0-9]{37}"),
    _token("langsmith-key", "lsv2_pt_ lsv2_sk_", r"[a-f0-9]{32}_[a-f0-9]{10}"),
    _token("pinecone-key", "pcsk_", r"[\w-]{60,80}"),
    # services
    _token("slack-token", "xoxb- xoxp- xoxa- xoxr- xoxs- xoxo- xoxe- xoxe. xapp-", r"[A-Za-z0-9.-]{20,300}+"),
    Rule(
        "slack-webhook",
        ("hooks.slack.com",),
        r"hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9+/]{40,80})",
    ),
    _token("stripe-key", "sk_live_ rk_live_ sk_test_ rk_test_", r"[A-Za-z0-9]{16,250}"),
    _token("stripe-webhook-secret", "whsec_", r"[A-Za-z0-9+/]{32,64}"),
    _token("sendgrid-key", "SG.", r"[\w-]{20,24}\.[\w-]{39,50}"),
    _token("twilio-key", "SK", r"[a-f0-9]{32}"),
    _token("mailgun-key", "key-", r"[a-f0-9]{32}"),
    Rule("mailchimp-key", ("-us",), rf"{_START}[a-f0-9]{{32}}-us[0-9]{{1,2}}{_END}"),
    _token("brevo-key", "xkeysib-", r"[a-f0-9]{64}-[A-Za-z0-9]{16}"),
    _token("shopify-token", "shpat_ shpca_ shppa_ shpss_", r"[A-Fa-f0-9]{32}"),
    _token("square-token", "sq0atp- sq0csp- EAAAE EAAAl", r"[\w-]{22,80}"),
    Rule("telegram-bot-token", (":AA",), rf"{_START}[0-9]{{8,10}}:AA[\w-]{{33}}(?![\w-])"),
    Rule(
        "discord-bot-token",
        ("MT", "Mj", "Mz", "ND", "NT", "Nj", "Nz", "OD", "OT"),
        r"(?<![\w-])[MNO][DTjz][\w-]{22,26}\.[\w-]{6}\.[\w-]{27,40}(?![\w-])",
        judge.discord_token,
    ),
    Rule("discord-webhook", ("/api/webhooks/",), r"/api/webhooks/[0-9]{17,20}/([\w-]{60,80})"),
    _token("linear-key", "lin_api_ lin_oauth_", r"[A-Za-z0-9]{32,64}"),
    _token("notion-token", "ntn_ secret_", r"[A-Za-z0-9]{40,50}"),
    _token("vault-token", "hvs. hvb. hvr.", r"[\w-]{24,300}+"),
    _token("age-secret-key", "AGE-SECRET-KEY-1", r"[QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L]{58}"),
    _token("1password-token", "ops_eyJ", r"[A-Za-z0-9+/]{200,2000}+={0,3}"),
    _token("1password-secret-key", "A3-", r"[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3}"),
    _token("atlassian-token", "ATATT3 ATCTT3 ATBB", r"[\w=-]{28,300}+"),
    _token("doppler-token", "dp.", r"(?:pt|st|ct|sa|scim|audit)\.(?:[\w-]{2,35}\.)?[A-Za-z0-9]{40,44}"),
    _token("grafana-token", "glsa_ glc_", r"[A-Za-z0-9+/=_]{32,400}"),
    _token("newrelic-key", "NRAK-", r"[A-Z0-9]{27}"),
    _token("sentry-token", "sntrys_ sntryu_", r"[A-Za-z0-9+/=_]{64,400}"),
    _token("posthog-key", "phx_", r"[A-Za-z0-9]{43,50}"),
    _token("figma-token", "figd_", r"[\w-]{40,50}"),
    Rule("airtable-token", ("pat",), rf"{_START}pat[A-Za-z0-9]{{14}}\.[a-f0-9]{{64}}{_END}"),
    _token("tailscale-key", "tskey-", r"[a-z]{3,10}-[A-Za-z0-9]{8,24}-[A-Za-z0-9]{20,40}"),
    _token("dynatrace-token", "dt0c01.", r"[A-Z0-9]{24}\.[A-Z0-9]{64}"),
    # shapes
    Rule(
        "private-key",
        ("PRIVATE KEY",),
        r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:(?:[^-]|-(?!----))*+-----END [A-Z0-9 ]{1,60}-----|(?:(?:\s|\\[nr]){0,60}+[A-Za-z0-9+/=]{16,}+)*+)",
        judge.private_key,
    ),
    # the later parts of a credential whose first part the policy redact has replaced
    Rule(
        "private-key",
        ("[redacted:private-key]",),
        r"\[redacted:private-key\]((?:(?:\s|\\[nr]){0,8}+[A-Za-z0-9+/=]{16,}+)++)",
        judge.private_key,
    ),
    _folded(
        "rest", "[redacted:", r"\[redacted:[a-z0-9-]{1,40}\]([\w+=~-][^\s\"'`<>\[\]]{3,400})", judge.continues_redaction
    ),
    Rule(
        "json-web-token",
        ("eyJ",),
        r"(?<![\w-])eyJ[\w-]{8,8000}+(?:\.[\w-]{0,14000}+){1,3}\.[\w-]{16,8000}+",
        judge.json_web_token,
    ),
    _folded(
        "connection-string",
        "://",
        r"(?<=[a-z0-9])://[^\s:/@\"'`<>]{0,128}:([^\s/@\"'`<>]{4,256})@(?=[\w\[])",
        judge.url_password,
    ),
    _folded("bearer-token", "bearer", r"\bbearer[ \t]{1,64}+([\w.~+/-]{20,4000}+={0,4})", judge.mixed_token),
    _folded("basic-auth", "basic", r"\bbasic[ \t]{1,64}+([a-z0-9+/]{8,400}+={0,2})", judge.basic_credentials),
    # values assigned to a name
    _folded("password", "pass pw", _PASSWORD + _CLOSED + _GIVEN + _QUOTED, judge.quoted_password),
    _folded("password", "pass pw", _PASSWORD + _CLOSED + _GIVEN + _BARE, judge.bare_password),
    _folded("password", "pass", _PASSWORD + _TOLD + _QUOTED, judge.quoted_password),
    _folded("password", "pass", f"{_PASSWORD}(?:{_TOLD}{_MIXED}|{_MEANT}){_BARE}", judge.stated_password),
    _folded("password", "pass pwd", f"<{_PASSWORD}>" + r"([^\s<>]{4,400})</", judge.quoted_password),
    _folded("password", "--pass", f"--{_PASSWORD}" + r"[ \t]{1,64}" + _BARE, judge.bare_password),
    _folded("password", "-u --user", r"(?:-u|--user)[ \t]{1,64}[\"']?[\w.@+-]{1,64}:" + _BARE, judge.bare_password),
    Rule("password", ("PASSWORD=", "PASSWD="), r"PASSW(?:OR)?D=([A-Za-z_-]{8,64})(?!\S)", judge.quoted_password),
    _folded(
        "assigned-key",
        "key token secret credential",
        f"{_KEY}(?:{_CLOSED}{_GIVEN}|{_TOLD}{_MIXED}|{_MEANT}){_BARE}",
        judge.assigned_key,
    ),
)
