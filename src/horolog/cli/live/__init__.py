"""The live view of `horolog top`: requests (`look`), drawing (`frame`), the keyboard (`keys`)."""
