// Command generate writes the schemas of Kubernetes' own kinds anew, from the OpenAPI document of the Kubernetes release that
// devcluster/ is built from. It needs no cluster and no network but Go's module cache.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: generate FOLDER-OF-DEVCLUSTER OUTPUT")
	}
	if err := generate(os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func generate(module, output string) error {
	list := exec.Command("go", "-C", module, "list", "-m", "-f", "{{.Version}} {{.Dir}}", "k8s.io/kubernetes")
	list.Stderr = os.Stderr
	answer, err := list.Output()
	if err != nil {
		return fmt.Errorf("ask where the source of Kubernetes is: %w", err)
	}
	version, folder, found := strings.Cut(strings.TrimSpace(string(answer)), " ")
	if !found {
		return fmt.Errorf("the source of Kubernetes is not in the module cache: run go mod download in %s", module)
	}
	swagger, err := os.ReadFile(filepath.Join(folder, "api", "openapi-spec", "swagger.json"))
	if err != nil {
		return fmt.Errorf("read the OpenAPI document: %w", err)
	}
	var document struct {
		Definitions map[string]any `json:"definitions"`
	}
	if err := json.Unmarshal(swagger, &document); err != nil {
		return fmt.Errorf("parse the OpenAPI document: %w", err)
	}
	kinds := map[string]string{}
	for name, definition := range document.Definitions {
		for _, kind := range kindsOf(definition) {
			kinds[kind] = name
		}
		document.Definitions[name] = reduce(definition, false)
	}
	return write(output, map[string]any{"version": version, "kinds": kinds, "definitions": document.Definitions})
}

// kindsOf returns the kinds that a definition describes, as group/version/kind.
func kindsOf(definition any) []string {
	var kinds []string
	fields, _ := definition.(map[string]any)
	entries, _ := fields["x-kubernetes-group-version-kind"].([]any)
	for _, entry := range entries {
		if kind, ok := entry.(map[string]any); ok {
			kinds = append(kinds, fmt.Sprintf("%v/%v/%v", kind["group"], kind["version"], kind["kind"]))
		}
	}
	return kinds
}

// reduce leaves out what validation does not look at; nine tenths of the document are descriptions. References become
// relative to the definition they are in. inProperties tells that the keys of value are names of fields.
func reduce(value any, inProperties bool) any {
	switch value := value.(type) {
	case map[string]any:
		for key, part := range value {
			if !inProperties && !needed(key) {
				delete(value, key)
				continue
			}
			value[key] = reduce(part, key == "properties" && !inProperties)
			if reference, ok := part.(string); ok && key == "$ref" {
				value[key] = strings.TrimPrefix(reference, "#/definitions/")
			}
		}
	case []any:
		for i := range value {
			value[i] = reduce(value[i], false)
		}
	}
	return value
}

func needed(key string) bool {
	return key != "description" && key != "default" && !strings.HasPrefix(key, "x-")
}

func write(output string, document any) error {
	text, err := json.Marshal(document)
	if err != nil {
		return err
	}
	var compressed bytes.Buffer
	writer, err := gzip.NewWriterLevel(&compressed, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := writer.Write(text); err != nil {
		return err
	}
	if err := writer.Close(); err != nil {
		return err
	}
	return os.WriteFile(output, compressed.Bytes(), 0o644)
}
