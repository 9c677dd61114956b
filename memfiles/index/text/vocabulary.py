"""English vocabulary of the search: stop words, and irregular forms that no suffix rule brings together."""

from __future__ import annotations

# These words are in nearly every question and in nearly every text.
STOP_WORDS = frozenset(
    """
    a about above after again all also am an and any are as at be because been before being below between both but by
    can could d did do does doing don down during each few for from further had has have having he her here hers herself
    him himself his how i if in into is it its itself just ll m may me might more most must my myself no nor not of off
    on once only or other our ours ourselves out over own re s same shall she should so some such t than that the their
    theirs them themselves then there these they this those through to too under until up ve very was we were what when
    where which while who whom whose why will with would you your yours yourself yourselves
    """.split()
)

# Irregular verbs and plurals: the forms of one word between two commas.
_GROUPS = """
    become became, begin began begun, bend bent, bind bound, bite bit bitten, blow blew blown,
    break broke broken, bring brought, build built, buy bought, catch caught, child children,
    choose chose chosen, come came, cling clung, deal dealt, dig dug, draw drew drawn, dream dreamt,
    drink drank drunk, drive drove driven, eat ate eaten, fall fell fallen, feed fed, feel felt,
    fight fought, find found, flee fled, fly flew flown, foot feet, forbid forbade forbidden,
    forget forgot forgotten, forgive forgave forgiven, freeze froze frozen, get got gotten,
    give gave given, go goes going went gone, good better best, bad worse worst, grow grew grown,
    half halves, hang hung, have has had, hear heard, hide hid hidden, hold held, keep kept,
    knife knives, know knew known, lay laid, lead led, leaf leaves, learn learnt, leave left, lend lent,
    life lives, lose lost, make made, man men, mean meant, meet met, mouse mice, pay paid,
    person people, ride rode ridden, ring rang rung, rise rose risen, run ran, say said, see saw seen,
    seek sought, sell sold, send sent, shake shook shaken, shine shone, shoot shot, show shown,
    shrink shrank shrunk, sing sang sung, sink sank sunk, sit sat, sleep slept, slide slid,
    speak spoke spoken, spend spent, spin spun, stand stood, steal stole stolen, stick stuck,
    strike struck stricken, swear swore sworn, sweep swept, swim swam swum, swing swung,
    take took taken, teach taught, tear tore torn, tell told, think thought, throw threw thrown,
    tooth teeth, understand understood, wake woke woken, wear wore worn, weave wove woven, weep wept,
    wife wives, win won, wolf wolves, woman women, write wrote written
"""

# Every irregular form, with all forms of its word.
FORMS: dict[str, tuple[str, ...]] = {
    form: tuple(group.split()) for group in _GROUPS.split(",") for form in group.split()
}
