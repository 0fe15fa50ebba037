"""Scenarios for agents that serve customers of a shop: `kindlm test pack:customer-support`.

They judge what an answer means, and know nothing of the agent's tools, words or policies.
"""
