"""Word errors of a recogniser on sentences of numbers, dates, times and prices that a voice reads.

    python benchmarks/read_sentences.py VOICE RECOGNISER

VOICE is a run of speech synthesis, RECOGNISER one of recognition, such as an imported Whisper base.
Both sides are compared as they are read out.
"""

import argparse

import transduce
from transduce.metrics.measure import measure
from transduce.speech.reading import read_out

SENTENCES = """\
I have 3 apples and 25 pears.
The meeting is at 10:30 on May 5, 2024.
Dr. Smith lives at 12 Main St.
It costs $5.20.
The train leaves at 7:45 and arrives at 11:05.
She was born on March 17, 1985.
We sold 1,250 books in 2019.
The temperature fell to -5 °C at night.
Prof. Miller spoke for 90 minutes.
A ticket is €12.50 for adults.
The house was built in 1904.
He ran 42 km in 3 hours.
About 75% of them agreed.
Call me at 6:15 tomorrow.
The 3rd house on the left is mine.
They paid $1,200 for 2 chairs.
The box weighs 4.5 kg.
On June 21, 2023 it rained.
There are 365 days in a year.
Mr. Brown and Mrs. Green are here.
The 21st century began in 2001.
It is 100 m to the station.
The film lasts 118 minutes.
Our office opens at 8:00 on Monday.
""".splitlines()


def main() -> None:
    """Print the word error rate, and each sentence that was heard otherwise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("voice")
    parser.add_argument("recogniser")
    arguments = parser.parse_args()
    voice = transduce.load(arguments.voice, "cpu")
    recogniser = transduce.load(arguments.recogniser, "cpu")
    language = {"language": "en"} if getattr(recogniser.recipe, "prompt", None) else {}
    outputs = []
    for sentence in SENTENCES:
        speech = voice.speak(sentence)
        segments = recogniser.transcribe(speech.wav(), **language)
        outputs.append(read_out(" ".join(segment.text for segment in segments), "en"))
    references = [read_out(sentence, "en") for sentence in SENTENCES]
    rate = measure(("word-error-rate",), outputs, [[text] for text in references])
    print(f"{len(SENTENCES)} sentences, word error rate {rate['word-error-rate']}")
    for reference, output in zip(references, outputs, strict=True):
        if reference.lower().strip(".") != output.lower().strip("."):
            print(f"{reference}\n  {output}")


if __name__ == "__main__":
    main()
