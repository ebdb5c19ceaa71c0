"""What is kept of changing items: payloads, filters of them, and changes that survive a crash."""
