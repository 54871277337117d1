package node

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"path/filepath"
	"time"
)

// Files of the control plane. One key signs service accounts' tokens and serves
// the API; its certificate is its own authority.
var (
	keyPath        = filepath.Join(Dir, "cluster.key")
	certPath       = filepath.Join(Dir, "cluster.crt")
	tokensPath     = filepath.Join(Dir, "tokens.csv")
	kubeconfigPath = filepath.Join(Dir, "kubeconfig")
)

// adminToken identifies a cluster administrator.
const adminToken = "administrator"

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: node, cluster: {server: "https://%s:%s", certificate-authority: "%s"}}]
users: [{name: admin, user: {token: "%s"}}]
contexts: [{name: node, context: {cluster: node, user: admin}}]
current-context: node
`

// writeKeys writes keys, tokens and the clients' configuration.
func (n *Node) writeKeys() error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return fmt.Errorf("make the cluster's key: %w", err)
	}
	cert, err := selfSigned(key)
	if err != nil {
		return fmt.Errorf("make the cluster's certificate: %w", err)
	}
	return writeFiles(map[string]string{
		keyPath:        string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})),
		certPath:       string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})),
		tokensPath:     adminToken + ",admin,admin,system:masters\n",
		kubeconfigPath: fmt.Sprintf(kubeconfig, nodeIP, apiPort, certPath, adminToken),
	})
}

func selfSigned(key *rsa.PrivateKey) ([]byte, error) {
	now := time.Now()
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "cluster"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA:        true, BasicConstraintsValid: true,
		DNSNames:    []string{"kubernetes", "kubernetes.default.svc", "localhost"},
		IPAddresses: []net.IP{net.ParseIP(nodeIP), net.ParseIP(serviceIP), net.ParseIP("127.0.0.1")},
	}
	return x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
}
