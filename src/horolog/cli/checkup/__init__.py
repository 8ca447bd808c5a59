"""What `horolog doctor` looks at: a running broker (`running`), a stopped directory (`stopped`), a local process."""
