"""Scenarios for agents that serve customers of a shop: `kindlm test pack:customer-support`.

They judge the meaning of answers, and depend on no tools, words or policies of the agent.
"""
