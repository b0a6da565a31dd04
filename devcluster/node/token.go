package node

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	volumeutil "k8s.io/kubernetes/pkg/volume/util"
	"k8s.io/utils/ptr"
)

// tokenPayload asks for a token that is bound to the pod: it ends with the pod, and at its expiry.
func (w *podWorker) tokenPayload(ctx context.Context, pod *corev1.Pod, source *corev1.ServiceAccountTokenProjection, mode *int32) (map[string]volumeutil.FileProjection, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: source.ExpirationSeconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	if source.Audience != "" {
		request.Spec.Audiences = []string{source.Audience}
	}
	account := pod.Spec.ServiceAccountName
	response, err := w.node.client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("failed to fetch token: %w", err)
	}
	w.tokenExpires(response.Status.ExpirationTimestamp.Time)
	file := volumeutil.FileProjection{Data: []byte(response.Status.Token), Mode: *mode}
	if uid := soleUser(pod); uid != nil && fsGroup(pod) == nil {
		file.FsUser, file.Mode = uid, 0o600
	} else if fsGroup(pod) != nil {
		file.Mode = 0o600
	}
	return map[string]volumeutil.FileProjection{filepath.Clean(source.Path): file}, nil
}

// soleUser is the user of all containers of the pod when they name the same one, as then only that one may read tokens.
func soleUser(pod *corev1.Pod) *int64 {
	var common *int64
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			user := declaredUser(pod, &list[i])
			if user == nil || common != nil && *common != *user {
				return nil
			}
			common = user
		}
	}
	return common
}

func declaredUser(pod *corev1.Pod, c *corev1.Container) *int64 {
	if c.SecurityContext != nil && c.SecurityContext.RunAsUser != nil {
		return c.SecurityContext.RunAsUser
	}
	if pod.Spec.SecurityContext != nil {
		return pod.Spec.SecurityContext.RunAsUser
	}
	return nil
}

// tokenExpires notes when the pod's next token must be asked for: when a fifth of its life is left.
func (w *podWorker) tokenExpires(at time.Time) {
	renew := at.Add(-time.Until(at) / 5)
	if w.renewTokens == nil || renew.Before(*w.renewTokens) {
		w.renewTokens = ptr.To(renew)
	}
}

// refreshPeriod is how often the files of running pods are brought up to date with the ConfigMaps and Secrets.
const refreshPeriod = time.Minute

// refreshVolumes rewrites the volumes of a running pod as what they show changes and as tokens near their expiry, until ctx
// is done.
func (w *podWorker) refreshVolumes(ctx context.Context, pod *corev1.Pod) {
	for {
		wake := time.Now().Add(refreshPeriod)
		if w.renewTokens != nil && w.renewTokens.Before(wake) {
			wake = *w.renewTokens
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(wake)):
		}
		renew := w.renewTokens != nil && !time.Now().Before(*w.renewTokens)
		if renew {
			w.renewTokens = nil
		}
		for i := range pod.Spec.Volumes {
			v := &pod.Spec.Volumes[i]
			if v.EmptyDir != nil || holdsToken(v) && !renew {
				continue
			}
			if err := w.mountVolume(ctx, w.pod(), v); err != nil && ctx.Err() == nil {
				w.log.Error(err, "Refreshing a volume failed, trying again", "volume", v.Name)
				if renew {
					w.tokenExpires(time.Now().Add(time.Minute))
				}
			}
		}
	}
}

func holdsToken(v *corev1.Volume) bool {
	if v.Projected == nil {
		return false
	}
	for _, source := range v.Projected.Sources {
		if source.ServiceAccountToken != nil {
			return true
		}
	}
	return false
}
