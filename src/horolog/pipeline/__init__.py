"""Jobs over whole logs and lakes, on Spark: audit, forecast, rebuild, offload.  Needs the extra `spark`."""
