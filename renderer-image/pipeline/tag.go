package pipeline

import (
	"regexp"
	"strings"

	"github.com/Masterminds/semver/v3"
)

var tagPattern = regexp.MustCompile(`^\w[\w.-]{0,127}$`)

// isTag says whether an image can have the text behind its colon; a version is one, too.
func isTag(text string) bool { return tagPattern.MatchString(text) }

// isVersionRange says whether the text stands for versions, such as ~0.2 or ">=1.0 <2".
func isVersionRange(text string) bool {
	_, err := semver.NewConstraint(text)
	return err == nil
}

// withTag is the image with the tag, or the range of versions, in the place of its own tag and digest.
func withTag(image, tag string) string {
	image, _, _ = strings.Cut(image, "@")
	// A colon before the last slash is that of a port.
	if colon := strings.LastIndexByte(image, ':'); colon > strings.LastIndexByte(image, '/') {
		image = image[:colon]
	}
	return image + ":" + tag
}
