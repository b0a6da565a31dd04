package pipeline

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/kiln-dev/kiln/renderer-image/function"
)

// document is one YAML document of a file with the text it came from, so that it can be written back unchanged.
type document struct {
	// before is what stands between the previous document and this one without being one: comments, empty documents.
	before string
	// text is the document itself, from its --- line if it has one.
	text string
	// after is such text behind the last document of a file.
	after string
	// first says that it was the first of its file, where a --- line is a matter of taste.
	first bool
	node  *yaml.Node
}

// splitDocuments parses all documents of a file.
func splitDocuments(content string) ([]*document, error) {
	var documents []*document
	pending := ""
	line := 0
	for _, part := range splitParts(content) {
		node, err := parseDocument(part)
		if err != nil {
			return nil, atLine(content, part, line, err)
		}
		line += strings.Count(part, "\n")
		if node == nil {
			pending += part
			continue
		}
		documents = append(documents, &document{
			before: pending, text: part, first: len(documents) == 0, node: node,
		})
		pending = ""
	}
	if len(documents) > 0 {
		documents[len(documents)-1].after = pending
	}
	return documents, nil
}

const crlf = "\r\n"

func withLF(text string) string { return strings.ReplaceAll(text, crlf, "\n") }

// lineEnd is how the lines of a document end: in CRLF if all of them do, else in LF.
func (d *document) lineEnd() string {
	if lines := strings.Count(d.text, crlf); lines > 0 && lines == strings.Count(d.text, "\n") {
		return crlf
	}
	return "\n"
}

// splitParts cuts a file before every --- line. Such a line is never part of a value: values are indented.
func splitParts(content string) []string {
	var parts []string
	start := 0
	for at := 0; at < len(content); {
		end := len(content)
		if newline := strings.IndexByte(content[at:], '\n'); newline >= 0 {
			end = at + newline + 1
		}
		if at > start && isMarker(content[at:end]) && !isDirective(content[start:at]) {
			parts = append(parts, content[start:at])
			start = at
		}
		at = end
	}
	return append(parts, content[start:])
}

func isMarker(line string) bool {
	rest, found := strings.CutPrefix(line, "---")
	return found && (rest == "" || strings.ContainsAny(rest[:1], " \t\r\n"))
}

// isDirective says that the text has no document, only the %-lines that belong to the one after it.
func isDirective(text string) bool {
	found := false
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "%"):
			found = true
		case strings.TrimSpace(line) != "" && !strings.HasPrefix(line, "#"):
			return false
		}
	}
	return found
}

// parseDocument returns nil for a part that holds no document, only comments or nothing.
func parseDocument(part string) (*yaml.Node, error) {
	if strings.TrimSpace(part) == "" {
		return nil, nil
	}
	// To YAML both line ends are one and the same, but its parser leaves a CR in comments.
	part = withLF(part)
	node := &yaml.Node{}
	if err := yaml.Unmarshal([]byte(part), node); err != nil {
		return nil, err
	}
	if strings.Contains(part, "\n...") {
		if err := checkEnd(part); err != nil {
			return nil, err
		}
	}
	if len(node.Content) == 0 || isNull(node.Content[0]) {
		return nil, nil
	}
	if err := function.CheckAliases(node); err != nil {
		return nil, err
	}
	plainMerges(node)
	return node, nil
}

// plainMerges takes the tag off the keys <<, which the encoder would otherwise write out.
func plainMerges(node *yaml.Node) {
	if node.Kind == yaml.ScalarNode && node.Tag == yaml.MergeTag {
		node.Tag = ""
	}
	for _, content := range node.Content {
		plainMerges(content)
	}
}

// checkEnd refuses text behind the end mark of a document, which would be lost.
func checkEnd(part string) error {
	decoder := yaml.NewDecoder(strings.NewReader(part))
	for documents := 0; ; documents++ {
		err := decoder.Decode(&yaml.Node{})
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case documents > 0:
			return errors.New("text follows the end of a document: separate documents by a line ---")
		}
	}
}

// isNull tells the document that an empty part or a part of comments makes.
func isNull(node *yaml.Node) bool {
	return node.Kind == yaml.ScalarNode && node.ShortTag() == yaml.NodeTagNull
}

// atLine makes the line in a parser's message count from the start of the file.
func atLine(content, part string, line int, err error) error {
	if line == 0 || len(content) < len(part) {
		return err
	}
	again := yaml.NewDecoder(strings.NewReader(strings.Repeat("\n", line) + part)).Decode(&yaml.Node{})
	if again != nil {
		return again
	}
	return fmt.Errorf("in the document from line %d: %w", line+1, err)
}
