// Package bundle is the contract between the controller and the renderer: the digest of contents, the snapshot that a
// render starts from, the result that it publishes, and the ConfigMaps that carry them. Whatever it reads is untrusted.
package bundle

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"maps"
	"slices"

	"github.com/kiln-dev/kiln/renderer-image/kptfile"
)

// rootKptfile is the path of the root Kptfile.
const rootKptfile = "Kptfile"

// digestVersion begins what a digest is taken of. A change of the canonical form changes it.
const digestVersion = "kiln.dev/contents/v1\n"

// Digest identifies contents: SHA-256, as 64 hex digits, over the files in the order of their paths, each path and text
// preceded by its length. The root Kptfile counts without its status and without blanks at its end, so that what a render
// writes into the status does not change the digest; one that cannot be read counts as it is.
func Digest(files map[string]string) string {
	sum := sha256.New()
	sum.Write([]byte(digestVersion))
	for _, path := range slices.Sorted(maps.Keys(files)) {
		text := files[path]
		if path == rootKptfile {
			if without, ok := kptfile.WithoutStatus(text); ok {
				text = without
			}
		}
		writeSized(sum, path)
		writeSized(sum, text)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

func writeSized(sum hash.Hash, text string) {
	var size [8]byte
	binary.BigEndian.PutUint64(size[:], uint64(len(text)))
	sum.Write(size[:])
	sum.Write([]byte(text))
}

func sha256Hex(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
