"""What survives: kills, power cuts, failing disks, many processes, and records that are not records."""
