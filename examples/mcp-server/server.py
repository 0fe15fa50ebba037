"""An MCP server with two tools, over standard input and output."""

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel

ORDERS = {"A1": "shipped", "B2": "delivered"}

server = MCPServer("shop")


class Order(BaseModel):
    order_id: str
    status: str


@server.tool()
def look_up_order(order_id: str) -> Order:
    """Find an order by its number."""
    if order_id not in ORDERS:
        raise ToolError(f"There is no order {order_id}")
    return Order(order_id=order_id, status=ORDERS[order_id])


@server.tool()
def cancel_order(order_id: str) -> str:
    """Cancel an order that was not shipped yet."""
    raise ToolError(f"Order {order_id} was shipped already")


if __name__ == "__main__":
    server.run("stdio")
