"""The live view of `horolog top`: looks at the broker (`look`), what is drawn (`frame`), the keyboard (`keys`)."""
