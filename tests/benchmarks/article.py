"""An article as it is saved: a paragraph an entry, all in one run, with a question that one paragraph answers.

Its paragraphs share their subject and most of their words, so each question has a little of its answer everywhere.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from memfiles.index.text.tokenizer import STOP_WORDS

ARTICLE: tuple[tuple[str, str], ...] = (
    (
        "The lighthouse of Skerrow stands on a reef two miles off the coast. Its tower is forty metres high and "
        "built of grey granite. The reef is under water for six hours of every tide.",
        "How high is the tower of the lighthouse?",
    ),
    (
        "Work on the reef began in the spring of 1838. The masons could stand on the rock for three hours a day, "
        "and in the first year they laid only four stones of the tower.",
        "When did work on the reef begin?",
    ),
    (
        "The granite came from a quarry at Ardmore. Each stone was cut there, fitted to its neighbours on a wooden "
        "floor, numbered, taken apart again and shipped to the reef.",
        "Which quarry did the granite of the tower come from?",
    ),
    (
        "A barrack on iron legs housed the masons during the summer. A storm in November 1839 carried the barrack "
        "away. Nobody was on the reef that night, but all the tools were lost.",
        "What did the storm carry away from the reef?",
    ),
    (
        "The second barrack stood on thicker legs and was bolted four feet into the rock. The masons slept in "
        "hammocks above the sea, and spray came through the floor in every storm.",
        "Where did the masons sleep in the second barrack?",
    ),
    (
        "The engineer of the lighthouse was Margaret Lorne, who had drained the fens at Holme before. She slept in "
        "the barrack with the masons and kept a diary of every tide.",
        "Who was the engineer of the lighthouse?",
    ),
    (
        "Lorne's diary is the best source on the work. It names every mason, gives the weight of every stone and "
        "notes the hours that the rock was dry on each tide.",
        "What does the diary of the engineer note on each tide?",
    ),
    (
        "The stones of the tower are dovetailed, so that the sea cannot lift one without its neighbours. No iron "
        "holds them. The lowest twelve courses are solid stone.",
        "How are the stones of the tower held together?",
    ),
    (
        "The tower was finished in the autumn of 1843. It had taken 4,196 stones and five summers. Three masons "
        "had died, none of them on the reef.",
        "How many stones did the tower take?",
    ),
    (
        "The lamp burnt whale oil at first. Four wicks, one inside the other, stood in a lens from Paris that "
        "weighed three tons. The light could be seen for eighteen miles.",
        "From how many miles could the light be seen?",
    ),
    (
        "Paraffin replaced the whale oil in 1871. It gave more light for a third of the price, but the keepers "
        "complained of the smoke, which blackened the lens every night.",
        "Why did the keepers complain of the paraffin?",
    ),
    (
        "Three keepers lived in the tower for six weeks at a time. Two kept watch by turns through the night, "
        "while the third cooked. A boat relieved one of them every second week.",
        "How many keepers lived in the tower?",
    ),
    (
        "The boat came from Port Ellery when the sea allowed. In the winter of 1861 it could not land for nine "
        "weeks, and the keepers lived on biscuits and on the fish that they caught from the reef.",
        "What did the keepers live on when the boat could not land?",
    ),
    (
        "Food was stored in the second room of the tower, coal in the first. Water was shipped in casks and "
        "rationed to half a gallon a day for each of the keepers.",
        "In which room of the tower was the coal?",
    ),
    (
        "In fog the keepers rang a bell of half a ton once a minute. A fog horn replaced the bell in 1902. It "
        "needed an engine, and so the keepers had to learn to look after engines.",
        "What replaced the bell in fog?",
    ),
    (
        "One night in 1915 the keepers saw a steamer run onto the north end of the reef. They lowered ropes from "
        "the tower and pulled nineteen of the crew out of the sea.",
        "How many of the crew did the keepers pull out of the sea?",
    ),
    (
        "The steamer was the Halcyon, with timber for Port Ellery. Her boiler still lies on the reef and shows at "
        "the lowest tides of the year.",
        "What was the steamer's cargo?",
    ),
    (
        "Electric light came to the tower in 1958, from a generator in the old coal room. The lens from Paris went "
        "to the museum of Port Ellery, where it still turns.",
        "Which museum has the lens?",
    ),
    (
        "The last keepers left the tower in 1982. Since then a computer switches the light, and engineers come by "
        "helicopter twice a year to clean the lamp and the panels.",
        "When did the last keepers leave?",
    ),
    (
        "Nobody has found a crack in the tower so far. A survey in 2019 measured how much it sways in a storm: "
        "less than the width of a finger at the top.",
        "How much does the tower sway in a storm?",
    ),
)
"""Paragraphs, each with its question."""


def paragraph_questions() -> Iterator[tuple[str, str]]:
    """The key of each paragraph (``p0``, ``p1`` ...) with its question, and with some of its words, three times."""
    chance = random.Random(7)
    for number, (text, question) in enumerate(ARTICLE):
        words = [word for word in re.findall(r"\w{3,}", text.lower()) if word not in STOP_WORDS]
        yield f"p{number}", question
        yield from ((f"p{number}", " ".join(chance.sample(words, 3))) for _ in range(3))
