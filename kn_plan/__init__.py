"""Device-neutral planning: layouts, fusion groups, schedule, arena and binding."""

__all__: list[str] = []
