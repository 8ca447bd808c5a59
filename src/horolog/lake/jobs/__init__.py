"""The lake's table, for the jobs that write and read it: `pipeline.offload`, `pipeline.promote`, the rebuild, the audit."""
