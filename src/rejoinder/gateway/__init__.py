"""The gateway: the HTTP side that agents speak to, and the capture of every turn."""
