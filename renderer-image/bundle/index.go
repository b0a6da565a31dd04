package bundle

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kiln "github.com/kiln-dev/kiln/api/v1alpha1"
)

// indexVersion is the version of the format. A reader knows one version only.
const indexVersion = "kiln.dev/result/v1"

// The keys of a result's ConfigMaps.
const (
	indexKey = "index.json"
	chunkKey = "chunk"
)

const (
	// chunkBytes is the size of a chunk: well below what a ConfigMap takes.
	chunkBytes = 512 << 10
	// inlineBytes is the largest archive that travels in the index itself, so that one write publishes it.
	inlineBytes = 512 << 10
	// maxChunks bounds what a reader fetches; as many hold MaxCompressedBytes.
	maxChunks = 24
)

// Index tells what a result consists of. It is published last: it exists only if all of the result does.
type Index struct {
	Version      string `json:"version"`
	InputDigest  string `json:"inputDigest"`
	OutputDigest string `json:"outputDigest"`
	Job          string `json:"job"`
	JobUID       string `json:"jobUID"`
	Pod          string `json:"pod"`
	PodUID       string `json:"podUID"`
	// Bytes and SHA256 are those of the archive.
	Bytes  int    `json:"bytes"`
	SHA256 string `json:"sha256"`
	// Chunks are the ConfigMaps that hold the archive, in order; none when it is in the index's own ConfigMap.
	Chunks []Chunk `json:"chunks,omitempty"`
}

// Chunk is a part of an archive, in a ConfigMap of its own.
type Chunk struct {
	Name   string `json:"name"`
	Bytes  int    `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Publisher is the pod that publishes a result.
type Publisher struct {
	Job Job
	Pod string
	UID types.UID
}

// IndexName is the name of the ConfigMap that holds the index of the pod's result.
func (p Publisher) IndexName() string { return "kiln-result-" + string(p.UID) }

func (p Publisher) chunkName(i int) string { return fmt.Sprintf("kiln-result-%s-%d", p.UID, i) }

// ResultConfigMaps carry a result, in the order in which they are to be created: the index comes last. Their names hold the
// pod's UID, so that two pods of one Job never meet. It fails with ErrTooLarge if the result exceeds the limits.
func ResultConfigMaps(p Publisher, r *Result) ([]*corev1.ConfigMap, error) {
	data, err := packResult(r)
	if err != nil {
		return nil, fmt.Errorf("pack the result: %w", err)
	}
	if len(data) > DefaultLimits.MaxCompressedBytes {
		return nil, fmt.Errorf("pack the result: %w: it has %d bytes, more than %d", ErrTooLarge, len(data), DefaultLimits.MaxCompressedBytes)
	}
	index := Index{
		Version: indexVersion, InputDigest: r.InputDigest, OutputDigest: r.OutputDigest,
		Job: p.Job.Name, JobUID: string(p.Job.UID), Pod: p.Pod, PodUID: string(p.UID),
		Bytes: len(data), SHA256: sha256Hex(data),
	}
	var parts []*corev1.ConfigMap
	binary := map[string][]byte{}
	if len(data) <= inlineBytes {
		binary[chunkKey] = data
	} else {
		for part := range slices.Chunk(data, chunkBytes) {
			chunk := Chunk{Name: p.chunkName(len(index.Chunks)), Bytes: len(part), SHA256: sha256Hex(part)}
			index.Chunks = append(index.Chunks, chunk)
			parts = append(parts, p.configMap(chunk.Name, kiln.ComponentResultChunk, nil, map[string][]byte{chunkKey: part}))
		}
	}
	text, err := json.Marshal(index)
	if err != nil {
		return nil, fmt.Errorf("write the index: %w", err)
	}
	binary[indexKey] = text
	annotations := map[string]string{kiln.AnnotationInputDigest: r.InputDigest, kiln.AnnotationOutputDigest: r.OutputDigest}
	return append(parts, p.configMap(p.IndexName(), kiln.ComponentResult, annotations, binary)), nil
}

func (p Publisher) configMap(name, component string, annotations map[string]string, data map[string][]byte) *corev1.ConfigMap {
	immutable := true
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Job.Namespace,
			Name:      name,
			Labels: map[string]string{
				kiln.LabelComponent: component,
				kiln.LabelJobUID:    string(p.Job.UID),
				kiln.LabelPodUID:    string(p.UID),
			},
			Annotations:     annotations,
			OwnerReferences: []metav1.OwnerReference{p.Job.owner()},
		},
		Immutable:  &immutable,
		BinaryData: data,
	}
}

// IndexOf reads the index in a ConfigMap and verifies that it is well formed and that labels, owner and name agree with it.
// Whether the pod it names is a pod of the Job, the caller has to find out.
func IndexOf(configMap *corev1.ConfigMap) (*Index, error) {
	var index Index
	if err := json.Unmarshal(configMap.BinaryData[indexKey], &index); err != nil {
		return nil, fmt.Errorf("read the index: %w: %w", ErrDamaged, err)
	}
	if index.Version != indexVersion {
		return nil, fmt.Errorf("read the index: %w: version %q is not %s", ErrDamaged, index.Version, indexVersion)
	}
	p := index.publisher(configMap.Namespace)
	if configMap.Name != p.IndexName() {
		return nil, fmt.Errorf("read the index: %w: its name is not %s", ErrDamaged, p.IndexName())
	}
	if len(index.Chunks) > maxChunks {
		return nil, fmt.Errorf("read the index: %w: %d chunks, more than %d", ErrTooLarge, len(index.Chunks), maxChunks)
	}
	for i, chunk := range index.Chunks {
		if chunk.Name != p.chunkName(i) {
			return nil, fmt.Errorf("read the index: %w: chunk %d is not named %s", ErrDamaged, i, p.chunkName(i))
		}
	}
	return &index, p.verify(configMap, kiln.ComponentResult)
}

func (x *Index) publisher(namespace string) Publisher {
	return Publisher{
		Job: Job{Namespace: namespace, Name: x.Job, UID: types.UID(x.JobUID)},
		Pod: x.Pod,
		UID: types.UID(x.PodUID),
	}
}

// verify compares a ConfigMap's labels and owner with what its publisher sets.
func (p Publisher) verify(configMap *corev1.ConfigMap, component string) error {
	want := p.configMap(configMap.Name, component, nil, nil)
	labels := maps.Clone(configMap.Labels)
	maps.DeleteFunc(labels, func(key, _ string) bool { _, ours := want.Labels[key]; return !ours })
	if !maps.Equal(labels, want.Labels) {
		return fmt.Errorf("ConfigMap %s: %w: its labels are not those of its index", configMap.Name, ErrDamaged)
	}
	if len(configMap.OwnerReferences) != 1 || configMap.OwnerReferences[0].UID != p.Job.UID || configMap.OwnerReferences[0].Kind != "Job" {
		return fmt.Errorf("ConfigMap %s: %w: it does not belong to Job %s", configMap.Name, ErrDamaged, p.Job.Name)
	}
	if configMap.Immutable == nil || !*configMap.Immutable {
		return fmt.Errorf("ConfigMap %s: %w: it is not immutable", configMap.Name, ErrDamaged)
	}
	return nil
}

// ResultOf puts a result together from the ConfigMap of its index and those of its chunks, in their order, and verifies all
// of it.
func ResultOf(configMap *corev1.ConfigMap, chunks []*corev1.ConfigMap, limits Limits) (*Result, error) {
	index, err := IndexOf(configMap)
	if err != nil {
		return nil, err
	}
	if len(chunks) != len(index.Chunks) {
		return nil, fmt.Errorf("%w: %d chunks, and the index names %d", ErrDamaged, len(chunks), len(index.Chunks))
	}
	data := configMap.BinaryData[chunkKey]
	if len(index.Chunks) > 0 {
		data = nil
	}
	for i, chunk := range index.Chunks {
		part := chunks[i].BinaryData[chunkKey]
		if chunks[i].Name != chunk.Name || len(part) != chunk.Bytes || sha256Hex(part) != chunk.SHA256 {
			return nil, fmt.Errorf("%w: chunk %s is not what the index says", ErrDamaged, chunk.Name)
		}
		if err := index.publisher(configMap.Namespace).verify(chunks[i], kiln.ComponentResultChunk); err != nil {
			return nil, err
		}
		data = append(data, part...)
	}
	if len(data) != index.Bytes || sha256Hex(data) != index.SHA256 {
		return nil, fmt.Errorf("%w: the archive is not what the index says", ErrDamaged)
	}
	result, err := unpackResult(data, limits)
	if err != nil {
		return nil, fmt.Errorf("unpack the result: %w", err)
	}
	if result.InputDigest != index.InputDigest || result.OutputDigest != index.OutputDigest {
		return nil, fmt.Errorf("%w: the result's digests are not those of the index", ErrDamaged)
	}
	return result, nil
}
