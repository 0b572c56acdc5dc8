"""Chat: normalising and rendering messages, detokenising, linking requests into sessions."""
