"""The wire formats of model APIs: what their answers and requests say, in kindlm's words.

Providers, agents and the gateway read the same bodies here. Everything in them is untrusted.
"""
