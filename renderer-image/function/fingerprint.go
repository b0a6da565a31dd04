package function

import (
	"hash/maphash"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

var seed = maphash.MakeSeed()

// Fingerprint is equal for trees that are written alike, down to quoting and comments. It only means something within one
// process. Keeping it is how a render knows what changed without a second copy of every tree.
func Fingerprint(node *yaml.Node) uint64 {
	var hash maphash.Hash
	hash.SetSeed(seed)
	addNode(&hash, node)
	return hash.Sum64()
}

func addNode(hash *maphash.Hash, node *yaml.Node) {
	_ = hash.WriteByte(byte(node.Kind))
	_ = hash.WriteByte(byte(node.Style))
	for _, text := range [...]string{
		node.Tag, node.Value, node.Anchor, node.HeadComment, node.LineComment, node.FootComment,
	} {
		_, _ = hash.WriteString(text)
		_ = hash.WriteByte(0)
	}
	for _, content := range node.Content {
		addNode(hash, content)
	}
	// Marks the end, so that moving a child to another level shows. No kind has this value.
	_ = hash.WriteByte(0xff)
}
