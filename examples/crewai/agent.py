"""A crew of CrewAI that answers customers of a shop."""

import json

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool


@tool
def lookup_order(order_id: str) -> str:
    """Return the status of an order."""
    return json.dumps({"order_id": order_id, "status": "shipped"})


support = Agent(
    role="Support",
    goal="Help the customers of a shop",
    backstory="You know the shop. Look every order up before you answer.",
    llm=LLM("gpt-4o"),
    tools=[lookup_order],
)
# kindlm puts the message in the place of {question}.
answer = Task(description="{question}", expected_output="One sentence", agent=support)
crew = Crew(agents=[support], tasks=[answer])
