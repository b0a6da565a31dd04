package pki

import (
	"fmt"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Kubeconfig issues a client certificate for subject and writes a self-contained kubeconfig for it to path.
func (a *Authority) Kubeconfig(path, server, name string, subject Subject) error {
	certFile, keyFile, err := a.Issue(name, subject)
	if err != nil {
		return err
	}
	config := clientcmdapi.NewConfig()
	cluster, user := clientcmdapi.NewCluster(), clientcmdapi.NewAuthInfo()
	cluster.Server = server
	for file, data := range map[string]*[]byte{
		a.CertFile(): &cluster.CertificateAuthorityData,
		certFile:     &user.ClientCertificateData,
		keyFile:      &user.ClientKeyData,
	} {
		if *data, err = os.ReadFile(file); err != nil {
			return fmt.Errorf("read what goes into the kubeconfig of %q: %w", name, err)
		}
	}
	context := clientcmdapi.NewContext()
	context.Cluster, context.AuthInfo = "devcluster", subject.User
	config.Clusters["devcluster"], config.AuthInfos[subject.User], config.Contexts["devcluster"] = cluster, user, context
	config.CurrentContext = "devcluster"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write the kubeconfig of %q: %w", name, err)
	}
	return nil
}
