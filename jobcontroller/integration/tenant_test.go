package integration

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// userConfig is the configuration of a client that acts as a user.
func userConfig(t *testing.T, user string) *rest.Config {
	t.Helper()
	config := rest.CopyConfig(adminConfig)
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	return config
}

// userWith is a client of a user who has ClusterRoles in one namespace, by RoleBindings.
func userWith(t *testing.T, namespace string, roles ...string) client.Client {
	t.Helper()
	g := NewWithT(t)
	user := "user-of-" + namespace
	for _, role := range roles {
		user += "-" + role
	}
	for _, role := range roles {
		bind(t, namespace, user, role)
	}
	c, err := client.New(userConfig(t, user), client.Options{Scheme: admin.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	return c
}

func bind(t *testing.T, namespace, user, role string) {
	t.Helper()
	NewWithT(t).Expect(admin.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "test-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})).To(Succeed())
}

// clusterRole makes a ClusterRole for one test and returns its name.
func clusterRole(t *testing.T, rule rbacv1.PolicyRule) string {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}, Rules: []rbacv1.PolicyRule{rule}}
	NewWithT(t).Expect(admin.Create(t.Context(), role)).To(Succeed())
	t.Cleanup(func() { _ = admin.Delete(context.Background(), role) })
	return role.Name
}

// beRefused matches the refusal of a policy that says the words given.
func beRefused(words ...string) gomegatypes.GomegaMatcher {
	said := []gomegatypes.GomegaMatcher{ContainSubstring("ValidatingAdmissionPolicy")}
	for _, word := range words {
		said = append(said, ContainSubstring(word))
	}
	refused := func(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) }
	return And(Satisfy(refused), WithTransform(error.Error, And(said...)))
}

// userClientset is for what client.Client cannot do.
func userClientset(t *testing.T, user string) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(userConfig(t, user))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return c
}
