// SPDX-License-Identifier: Apache-2.0

// Command go_reference writes the reference of a Go package as a Markdown page: go run go_reference.go FOLDER
package main

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/doc"
	"go/doc/comment"
	"go/format"
	"go/parser"
	"go/token"
	"log"
	"os"
	"path/filepath"
	"strings"
)

type page struct {
	*doc.Package
	fset *token.FileSet
}

func main() {
	folder := os.Args[1]
	built, err := build.ImportDir(folder, 0) // only the files of this platform, without tests
	if err != nil {
		log.Fatal(err)
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range append(built.GoFiles, built.CgoFiles...) {
		file, err := parser.ParseFile(fset, filepath.Join(folder, name), nil, parser.ParseComments)
		if err != nil {
			log.Fatal(err)
		}
		files = append(files, file)
	}
	docs, err := doc.NewFromFiles(fset, files, "kvcache.dev/kvcache")
	if err != nil {
		log.Fatal(err)
	}
	p := page{docs, fset}
	fmt.Printf("# Package %s\n\n```go\nimport %q\n```\n\n%s\n", p.Name, p.ImportPath, p.text(p.Doc))
	p.values("Constants", p.Consts)
	p.values("Variables", p.Vars)
	if len(p.Funcs) > 0 {
		fmt.Print("## Functions\n\n")
		p.functions("###", p.Funcs)
	}
	for _, t := range p.Types {
		fmt.Printf("## type %s\n\n", t.Name)
		p.declaration(t.Decl, t.Doc)
		for _, value := range append(t.Consts, t.Vars...) {
			p.declaration(value.Decl, value.Doc)
		}
		p.functions("###", t.Funcs)
		p.functions("###", t.Methods)
	}
}

func (p page) values(title string, values []*doc.Value) {
	if len(values) > 0 {
		fmt.Printf("## %s\n\n", title)
	}
	for _, value := range values {
		p.declaration(value.Decl, value.Doc)
	}
}

func (p page) functions(level string, functions []*doc.Func) {
	for _, f := range functions {
		receiver := ""
		if f.Recv != "" {
			receiver = "(" + f.Recv + ") "
		}
		fmt.Printf("%s func %s%s\n\n", level, receiver, f.Name)
		p.declaration(f.Decl, f.Doc)
	}
}

// declaration writes a declaration without its body, and its comment as text.
func (p page) declaration(decl ast.Decl, about string) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		d.Doc, d.Body = nil, nil
	case *ast.GenDecl:
		d.Doc = nil
	}
	var code strings.Builder
	if err := format.Node(&code, p.fset, decl); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("```go\n%s\n```\n\n%s\n", code.String(), p.text(about))
}

// text makes Markdown of a comment. Links between symbols become plain names.
func (p page) text(about string) string {
	printer := p.Printer()
	printer.HeadingLevel = 4
	printer.HeadingID = func(*comment.Heading) string { return "" }
	return string(printer.Markdown(p.Parser().Parse(about)))
}
