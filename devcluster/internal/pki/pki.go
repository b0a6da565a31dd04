// Package pki makes the certificates and keys of one embedded cluster: an authority of its own, and what it signs.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// validity is how long everything is valid. An embedded cluster lives for minutes or days.
const validity = 365 * 24 * time.Hour

// Authority signs the certificates of one cluster. Its files are ca.crt and ca.key in Dir.
type Authority struct {
	Dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Subject says whom a certificate is for.
type Subject struct {
	// User becomes the common name, Groups the organisations: that is how Kubernetes reads client certificates.
	User   string
	Groups []string
	// Hosts are the DNS names and IP addresses a serving certificate is valid for.
	Hosts []string
}

// Open loads the authority kept in dir, or makes one there.
func Open(dir string) (*Authority, error) {
	a, err := Load(dir)
	if err == nil || !errors.Is(err, os.ErrNotExist) {
		return a, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder for certificates: %w", err)
	}
	key, err := newKey(filepath.Join(dir, "ca.key"))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "devcluster"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(validity),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign the authority's certificate: %w", err)
	}
	if err := writePEM(filepath.Join(dir, "ca.crt"), "CERTIFICATE", der, 0o644); err != nil {
		return nil, err
	}
	return Load(dir)
}

// Load reads the authority kept in dir. It wraps os.ErrNotExist when there is none.
func Load(dir string) (*Authority, error) {
	certBlock, err := readPEM(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, err
	}
	keyBlock, err := readPEM(filepath.Join(dir, "ca.key"))
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(certBlock)
	if err != nil {
		return nil, fmt.Errorf("parse the authority's certificate: %w", err)
	}
	key, err := x509.ParseECPrivateKey(keyBlock)
	if err != nil {
		return nil, fmt.Errorf("parse the authority's key: %w", err)
	}
	return &Authority{Dir: dir, cert: cert, key: key}, nil
}

// CertFile is the path of the authority's certificate.
func (a *Authority) CertFile() string { return filepath.Join(a.Dir, "ca.crt") }

// Issue writes NAME.crt and NAME.key for subject and returns their paths. Certificates serve both ends of TLS.
func (a *Authority) Issue(name string, subject Subject) (certFile, keyFile string, err error) {
	certFile, keyFile = filepath.Join(a.Dir, name+".crt"), filepath.Join(a.Dir, name+".key")
	key, err := newKey(keyFile)
	if err != nil {
		return "", "", err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return "", "", fmt.Errorf("draw a serial number: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: subject.User, Organization: subject.Groups},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(validity),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	for _, host := range subject.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return "", "", fmt.Errorf("sign the certificate of %q: %w", name, err)
	}
	return certFile, keyFile, writePEM(certFile, "CERTIFICATE", der, 0o644)
}

// SigningKey writes a private key to path unless one is there. The API server signs service account tokens with it.
func SigningKey(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	_, err := newKey(path)
	return err
}

func newKey(path string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return key, writePEM(path, "EC PRIVATE KEY", der, 0o600)
}

func writePEM(path, kind string, der []byte, mode os.FileMode) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode)
}

func readPEM(path string) ([]byte, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(raw)
	if block == nil {
		return nil, fmt.Errorf("%s holds no PEM block", path)
	}
	return block.Bytes, nil
}
