//go:build tools

// Package tools names what is built here: h2spec, by the versions and sums of go.mod and go.sum.
package tools

import _ "github.com/summerwind/h2spec/cmd/h2spec"
