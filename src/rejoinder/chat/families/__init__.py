"""Chat families: how a kind of model writes its thoughts and its tool calls, and how to read them.

A family is a renderer and a parser. The parser takes an answer as it is sampled and gives typed
events; what it cannot read as a thought or a call is content, so that no text is ever lost.
"""
