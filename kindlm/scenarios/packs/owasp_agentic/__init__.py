"""Attacks on agents, by the classes of OWASP: `kindlm test pack:owasp-agentic`.

`models.yaml` attacks a model through the results of simulated tools; `conversations.yaml` attacks
any model or agent through messages and pasted text of a user. No test needs a judge. A check that
forbids something fails if an attack succeeds; a check that demands something fails if the task is
not done.
"""
