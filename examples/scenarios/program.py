"""The agent as a program: it reads a message from each line, and prints a line as the answer."""

import json
import sys

from shop import chat

for line in sys.stdin:
    print(json.dumps(chat(json.loads(line))), flush=True)
