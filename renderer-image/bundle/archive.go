package bundle

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"
)

// Limits bound what is read from an archive.
type Limits struct {
	// MaxFiles is the most files.
	MaxFiles int
	// MaxPathBytes is the longest path.
	MaxPathBytes int
	// MaxTextBytes is the most bytes of text in all, decompressed.
	MaxTextBytes int64
	// MaxCompressedBytes is the largest archive.
	MaxCompressedBytes int
}

// DefaultLimits hold what a PackageRevision can hold, and room for a result that outgrew it by a few times, so that it is
// told as too large and not as damaged.
var DefaultLimits = Limits{
	MaxFiles:           20000,
	MaxPathBytes:       4096,
	MaxTextBytes:       32 << 20,
	MaxCompressedBytes: 12 << 20,
}

var (
	// ErrDamaged says that an archive, an index or a chunk is not what this package writes.
	ErrDamaged = errors.New("damaged")
	// ErrTooLarge says that a limit is exceeded.
	ErrTooLarge = errors.New("too large")
)

// CheckPath fails for a path that contents must not have: it has to be relative and slash-separated, in UTF-8, without
// control characters and without empty, "." and ".." segments.
func CheckPath(path string) error {
	if path == "" {
		return fmt.Errorf("%w: an empty path", ErrDamaged)
	}
	if !utf8.ValidString(path) || strings.ContainsFunc(path, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
		return fmt.Errorf("%w: path %q has control characters or is not UTF-8", ErrDamaged, path)
	}
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return fmt.Errorf("%w: path %q is absolute, or has an empty, '.' or '..' segment", ErrDamaged, path)
		}
	}
	return nil
}

// CheckTree fails if the files cannot be put into a folder together: if a path is both a file and the folder of another one.
func CheckTree(files map[string]string) error {
	for _, path := range slices.Sorted(maps.Keys(files)) {
		for i := range len(path) {
			if path[i] != '/' {
				continue
			}
			if _, ok := files[path[:i]]; ok {
				return fmt.Errorf("%q is a file, and %q needs a folder of that name: rename one of them", path[:i], path)
			}
		}
	}
	return nil
}

// pack writes files into an archive: a tar in the order of the paths, without times and owners, compressed by zstd. Equal
// files give equal bytes.
func pack(files map[string]string) ([]byte, error) {
	var out bytes.Buffer
	// Entropy coding of all literals is what makes a MiB of any text fit a ConfigMap.
	compressor, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1), zstd.WithAllLitEntropyCompression(true))
	if err != nil {
		return nil, fmt.Errorf("make the compressor: %w", err)
	}
	archive := tar.NewWriter(compressor)
	for _, path := range slices.Sorted(maps.Keys(files)) {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: path, Size: int64(len(files[path])), Mode: 0o644, ModTime: time.Unix(0, 0)}
		if err := archive.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("pack %q: %w", path, err)
		}
		if _, err := io.WriteString(archive, files[path]); err != nil {
			return nil, fmt.Errorf("pack %q: %w", path, err)
		}
	}
	if err := errors.Join(archive.Close(), compressor.Close()); err != nil {
		return nil, fmt.Errorf("finish the archive: %w", err)
	}
	return out.Bytes(), nil
}

// unpack reads an archive. Paths are checked, every file is a regular one, none comes twice.
func unpack(data []byte, limits Limits) (map[string]string, error) {
	if len(data) > limits.MaxCompressedBytes {
		return nil, fmt.Errorf("%w: the archive has %d bytes, more than %d", ErrTooLarge, len(data), limits.MaxCompressedBytes)
	}
	// A window as large as the text is all that an honest archive needs.
	decompressor, err := zstd.NewReader(bytes.NewReader(data), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(8<<20), zstd.WithDecoderMaxMemory(64<<20))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	defer decompressor.Close()
	// Headers take room, too: half a KiB and the padding for each file, and more for long paths.
	bound := limits.MaxTextBytes + int64(limits.MaxFiles)*int64(2048+limits.MaxPathBytes)
	bounded := &io.LimitedReader{R: decompressor, N: bound}
	archive := tar.NewReader(bounded)
	files := map[string]string{}
	left := limits.MaxTextBytes
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, damaged(err, bounded)
		}
		if err := checkHeader(header, files, limits, left); err != nil {
			return nil, err
		}
		text := make([]byte, header.Size)
		if _, err := io.ReadFull(archive, text); err != nil {
			return nil, damaged(err, bounded)
		}
		if !utf8.Valid(text) {
			return nil, fmt.Errorf("%w: %q is not UTF-8", ErrDamaged, header.Name)
		}
		left -= header.Size
		files[header.Name] = string(text)
	}
}

func checkHeader(header *tar.Header, files map[string]string, limits Limits, left int64) error {
	if header.Typeflag != tar.TypeReg {
		return fmt.Errorf("%w: %q is not a regular file", ErrDamaged, header.Name)
	}
	if err := CheckPath(header.Name); err != nil {
		return err
	}
	if len(header.Name) > limits.MaxPathBytes {
		return fmt.Errorf("%w: a path of %d bytes, more than %d", ErrTooLarge, len(header.Name), limits.MaxPathBytes)
	}
	if _, ok := files[header.Name]; ok {
		return fmt.Errorf("%w: %q comes twice", ErrDamaged, header.Name)
	}
	if len(files) == limits.MaxFiles {
		return fmt.Errorf("%w: more than %d files", ErrTooLarge, limits.MaxFiles)
	}
	if header.Size < 0 || header.Size > left {
		return fmt.Errorf("%w: more than %d bytes of text", ErrTooLarge, limits.MaxTextBytes)
	}
	return nil
}

func damaged(err error, read *io.LimitedReader) error {
	if read.N <= 0 {
		return fmt.Errorf("%w: the archive decompresses to too much", ErrTooLarge)
	}
	return fmt.Errorf("%w: %w", ErrDamaged, err)
}
