package node

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Image is the local program that stands for a container image.
type Image struct {
	// Program is an absolute path, Args its default arguments.
	Program string
	Args    []string
	// UID and GID are the image's own user; root unless said otherwise.
	UID, GID int
}

// ParseImage reads a mapping "NAME=[UID[:GID]@]PATH [ARG...]".
func ParseImage(line string) (name string, image Image, err error) {
	name, rest, found := strings.Cut(line, "=")
	fields := strings.Fields(rest)
	if name = strings.TrimSpace(name); !found || name == "" || len(fields) == 0 {
		return "", Image{}, fmt.Errorf("the image mapping %q is not of the form NAME=[UID[:GID]@]PATH [ARG...]", line)
	}
	image = Image{Program: fields[0], Args: fields[1:]}
	if user, program, found := strings.Cut(fields[0], "@"); found && !strings.Contains(user, "/") {
		uid, gid, hasGID := strings.Cut(user, ":")
		if !hasGID {
			gid = uid
		}
		if image.UID, err = strconv.Atoi(uid); err == nil {
			image.GID, err = strconv.Atoi(gid)
		}
		if err != nil {
			return "", Image{}, fmt.Errorf("the user in the image mapping %q is not UID or UID:GID", line)
		}
		image.Program = program
	}
	if !filepath.IsAbs(image.Program) {
		return "", Image{}, fmt.Errorf("the program in the image mapping %q must be an absolute path", line)
	}
	return name, image, nil
}

// lookUpImage finds the mapping of an image in the file, which may have changed since the last look. A later line wins. A
// name without a tag also stands for the name with ":latest".
func lookUpImage(file, name string) (*Image, error) {
	f, err := os.Open(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read the image mappings: %w", err)
	}
	var result *Image
	if err == nil {
		defer func() { _ = f.Close() }()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			line := strings.TrimSpace(lines.Text())
			if line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			mapped, image, err := ParseImage(line)
			if err != nil {
				return nil, err
			}
			if mapped == name || mapped+":latest" == name || mapped == name+":latest" {
				result = &image
			}
		}
	}
	if result == nil {
		return nil, fmt.Errorf("%s: not found: no local program stands for this image; map one with --image %s=PATH or a line %s=PATH in %s", name, name, name, file)
	}
	if info, err := os.Stat(result.Program); err != nil {
		return nil, fmt.Errorf("%s: not found: the program mapped to this image: %w", name, err)
	} else if info.IsDir() || info.Mode()&0o111 == 0 {
		return nil, fmt.Errorf("%s: not found: %s, mapped to this image, is not an executable file", name, result.Program)
	}
	return result, nil
}
