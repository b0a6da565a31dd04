package function

import (
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"strings"
	"unicode/utf8"

	"go.starlark.net/starlark"
)

// csvReadAll returns the rows of a text as lists of strings.
func csvReadAll(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var source, comma, comment string
	var lazyQuotes, trim bool
	var fields, skip int
	err := starlark.UnpackArgs(b.Name(), args, kwargs, "source", &source, "comma?", &comma, "comment?", &comment,
		"lazy_quotes?", &lazyQuotes, "trim_leading_space?", &trim, "fields_per_record?", &fields, "skip?", &skip)
	if err != nil {
		return nil, err
	}
	reader := csv.NewReader(strings.NewReader(source))
	reader.LazyQuotes, reader.TrimLeadingSpace, reader.FieldsPerRecord = lazyQuotes, trim, fields
	if err := setRune(&reader.Comma, "comma", comma); err != nil {
		return nil, err
	}
	if err := setRune(&reader.Comment, "comment", comment); err != nil {
		return nil, err
	}
	records, err := reader.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", b.Name(), err)
	}
	rows := make([]starlark.Value, 0, len(records))
	for _, record := range records[min(max(skip, 0), len(records)):] {
		row := make([]starlark.Value, len(record))
		for i, field := range record {
			row[i] = starlark.String(field)
		}
		rows = append(rows, starlark.NewList(row))
	}
	return starlark.NewList(rows), nil
}

// csvWriteAll writes rows, each a list or a tuple; what is not a string is written as str() has it.
func csvWriteAll(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var source starlark.Iterable
	var comma string
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "source", &source, "comma?", &comma); err != nil {
		return nil, err
	}
	var text strings.Builder
	writer := csv.NewWriter(&text)
	if err := setRune(&writer.Comma, "comma", comma); err != nil {
		return nil, err
	}
	for row := range starlark.Elements(source) {
		fields, ok := row.(starlark.Iterable)
		if !ok {
			return nil, fmt.Errorf("%s: a row is a %s: it must be a list", b.Name(), row.Type())
		}
		var record []string
		for field := range starlark.Elements(fields) {
			value, isString := starlark.AsString(field)
			if !isString {
				value = field.String()
			}
			record = append(record, value)
		}
		if err := writer.Write(record); err != nil {
			return nil, fmt.Errorf("%s: %w", b.Name(), err)
		}
	}
	writer.Flush()
	return starlark.String(text.String()), writer.Error()
}

// setRune sets an option that is one character, unless it is left out.
func setRune(option *rune, name, value string) error {
	if value == "" {
		return nil
	}
	if utf8.RuneCountInString(value) != 1 {
		return errors.New(name + " must be one character")
	}
	*option, _ = utf8.DecodeRuneInString(value)
	return nil
}

// hashWith returns a function that writes the sum of a text in hexadecimal digits.
func hashWith(algorithm func() hash.Hash) builtin {
	return func(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		var text string
		if err := starlark.UnpackArgs(b.Name(), args, kwargs, "text", &text); err != nil {
			return nil, err
		}
		sum := algorithm()
		_, _ = sum.Write([]byte(text))
		return starlark.String(hex.EncodeToString(sum.Sum(nil))), nil
	}
}
