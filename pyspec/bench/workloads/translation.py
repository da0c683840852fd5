"""Sentences are copied one by one, each with its translation: half of the answer stands in the prompt.

Owns its words.
"""

from __future__ import annotations

__all__ = ["CONTINUATION", "PROMPT"]

PROMPT = """\
Signs of the museum, to be translated for the German visitors.

1. Please leave large bags and umbrellas in the cloakroom.
2. Photographs are allowed, but only without a flash.
3. The lift to the second floor is behind the staircase.
4. Children under twelve must be accompanied by an adult.
5. Please do not touch the sculptures in the courtyard.
6. The reading room is open to members of the society only.
7. Guided tours start every hour at the main entrance.
8. The cafeteria closes half an hour before the museum.
9. Tickets for the special exhibition are sold downstairs.
10. In case of fire, follow the green lights to the nearest exit.

Each sign with its translation:

English: 1. Please leave large bags and umbrellas in the cloakroom.
German: 1. Bitte geben Sie große Taschen und Regenschirme an der Garderobe ab.

English: 2. Photographs are allowed, but only without a flash.
German: 2. Fotografieren ist erlaubt, aber nur ohne Blitz.

English: 3. The lift to the second floor is behind the staircase.
German: 3. Der Aufzug in den zweiten Stock befindet sich hinter der Treppe.

"""

CONTINUATION = """\
English: 4. Children under twelve must be accompanied by an adult.
German: 4. Kinder unter zwölf Jahren müssen von einem Erwachsenen begleitet werden.

English: 5. Please do not touch the sculptures in the courtyard.
German: 5. Bitte berühren Sie die Skulpturen im Innenhof nicht.

English: 6. The reading room is open to members of the society only.
German: 6. Der Lesesaal ist nur für Mitglieder der Gesellschaft geöffnet.

English: 7. Guided tours start every hour at the main entrance.
German: 7. Führungen beginnen jede Stunde am Haupteingang.

English: 8. The cafeteria closes half an hour before the museum.
German: 8. Die Cafeteria schließt eine halbe Stunde vor dem Museum.

English: 9. Tickets for the special exhibition are sold downstairs.
German: 9. Karten für die Sonderausstellung gibt es unten.
"""
