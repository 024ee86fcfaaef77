"""What a module of a handler's keeps."""

IDS: list[int] = []
