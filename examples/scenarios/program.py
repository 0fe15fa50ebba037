"""The agent as a program: a line of its input is a message, a line of its output the answer."""

import json
import sys

from shop import chat

for line in sys.stdin:
    print(json.dumps(chat(json.loads(line))), flush=True)
