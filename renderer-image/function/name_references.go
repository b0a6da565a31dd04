package function

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/resid"
)

// nameReference is one field that holds the name of another resource.
type nameReference struct {
	target resid.Gvk
	field  types.FieldSpec
}

// nameReferences returns the fields of Kubernetes' own kinds that hold the name of another resource. Kustomize knows them too, but
// does not give its list out.
var nameReferences = sync.OnceValue(func() []nameReference {
	var references []nameReference
	add := func(target, referrer, path string) {
		references = append(references, nameReference{
			target: resid.Gvk{Kind: target},
			field:  types.FieldSpec{Gvk: resid.Gvk{Kind: referrer}, Path: path},
		})
	}
	for target, paths := range inPodSpecs {
		for _, path := range paths {
			for referrer, spec := range podSpecs {
				if rest, found := strings.CutPrefix(path, "containers/"); found {
					for _, containers := range []string{"containers/", "initContainers/", "ephemeralContainers/"} {
						add(target, referrer, spec+containers+rest)
					}
					continue
				}
				add(target, referrer, spec+path)
			}
		}
	}
	for target, referrers := range inOtherFields {
		for _, referrer := range referrers {
			kind, path, _ := strings.Cut(referrer, " ")
			add(target, kind, path)
		}
	}
	slices.SortFunc(references, func(a, b nameReference) int {
		return cmp.Or(
			strings.Compare(a.field.Kind, b.field.Kind), strings.Compare(a.field.Path, b.field.Path),
			strings.Compare(a.target.Kind, b.target.Kind))
	})
	return references
})

// podSpecs says where the kinds that make pods keep the pod's spec.
var podSpecs = map[string]string{
	"Pod":                   "spec/",
	"PodTemplate":           "template/spec/",
	"ReplicationController": "spec/template/spec/",
	"ReplicaSet":            "spec/template/spec/",
	"Deployment":            "spec/template/spec/",
	"DaemonSet":             "spec/template/spec/",
	"StatefulSet":           "spec/template/spec/",
	"Job":                   "spec/template/spec/",
	"CronJob":               "spec/jobTemplate/spec/template/spec/",
}

// inPodSpecs are the names that a pod's spec holds; containers stands for all three lists of containers.
var inPodSpecs = map[string][]string{
	"ConfigMap": {
		"containers/env/valueFrom/configMapKeyRef/name", "containers/envFrom/configMapRef/name",
		"volumes/configMap/name", "volumes/projected/sources/configMap/name",
	},
	"Secret": {
		"containers/env/valueFrom/secretKeyRef/name", "containers/envFrom/secretRef/name", "imagePullSecrets/name",
		"volumes/secret/secretName", "volumes/projected/sources/secret/name", "volumes/azureFile/secretName",
		"volumes/cephfs/secretRef/name", "volumes/cinder/secretRef/name", "volumes/csi/nodePublishSecretRef/name",
		"volumes/flexVolume/secretRef/name", "volumes/iscsi/secretRef/name", "volumes/rbd/secretRef/name",
		"volumes/scaleIO/secretRef/name", "volumes/storageos/secretRef/name",
	},
	"PersistentVolumeClaim": {"volumes/persistentVolumeClaim/claimName"},
	"StorageClass":          {"volumes/ephemeral/volumeClaimTemplate/spec/storageClassName"},
	"ServiceAccount":        {"serviceAccountName", "serviceAccount"},
	"PriorityClass":         {"priorityClassName"},
	"RuntimeClass":          {"runtimeClassName"},
	"ResourceClaim":         {"resourceClaims/resourceClaimName"},
	"ResourceClaimTemplate": {"resourceClaims/resourceClaimTemplateName"},
}

// inOtherFields are the names that other fields hold, as kind and path. A path that ends at a mapping or a list of mappings means
// a name and a namespace in it.
var inOtherFields = map[string][]string{
	"ConfigMap": {
		"Role rules/resourceNames", "ClusterRole rules/resourceNames",
		`Ingress metadata/annotations/nginx.ingress.kubernetes.io\/fastcgi-params-configmap`,
	},
	"Secret": {
		"Role rules/resourceNames", "ClusterRole rules/resourceNames",
		"ServiceAccount secrets/name", "ServiceAccount imagePullSecrets/name", "Ingress spec/tls/secretName",
		`Ingress metadata/annotations/ingress.kubernetes.io\/auth-secret`,
		`Ingress metadata/annotations/nginx.ingress.kubernetes.io\/auth-secret`,
		`Ingress metadata/annotations/nginx.ingress.kubernetes.io\/auth-tls-secret`,
		"PersistentVolume spec/azureFile/secretName", "StorageClass parameters/secretName", "StorageClass parameters/secretRef",
		"StorageClass parameters/adminSecretName", "StorageClass parameters/userSecretName",
	},
	"Service": {
		"StatefulSet spec/serviceName", "APIService spec/service", "Ingress spec/defaultBackend/service/name",
		"Ingress spec/rules/http/paths/backend/service/name", "Ingress spec/backend/serviceName",
		"Ingress spec/rules/http/paths/backend/serviceName",
		"ValidatingWebhookConfiguration webhooks/clientConfig/service", "MutatingWebhookConfiguration webhooks/clientConfig/service",
		"CustomResourceDefinition spec/conversion/webhook/clientConfig/service",
	},
	"IngressClass":          {"Ingress spec/ingressClassName"},
	"ServiceAccount":        {"RoleBinding subjects", "ClusterRoleBinding subjects"},
	"Role":                  {"RoleBinding roleRef/name"},
	"ClusterRole":           {"RoleBinding roleRef/name", "ClusterRoleBinding roleRef/name"},
	"Deployment":            {"HorizontalPodAutoscaler spec/scaleTargetRef/name"},
	"ReplicaSet":            {"HorizontalPodAutoscaler spec/scaleTargetRef/name"},
	"ReplicationController": {"HorizontalPodAutoscaler spec/scaleTargetRef/name"},
	"StatefulSet":           {"HorizontalPodAutoscaler spec/scaleTargetRef/name"},
	"PersistentVolume":      {"PersistentVolumeClaim spec/volumeName", "ClusterRole rules/resourceNames"},
	"PersistentVolumeClaim": {"PersistentVolume spec/claimRef"},
	"StorageClass": {
		"PersistentVolume spec/storageClassName", "PersistentVolumeClaim spec/storageClassName",
		"StatefulSet spec/volumeClaimTemplates/spec/storageClassName",
	},
	"VolumeAttributesClass":      {"PersistentVolumeClaim spec/volumeAttributesClassName"},
	"ValidatingAdmissionPolicy":  {"ValidatingAdmissionPolicyBinding spec/policyName"},
	"MutatingAdmissionPolicy":    {"MutatingAdmissionPolicyBinding spec/policyName"},
	"PriorityLevelConfiguration": {"FlowSchema spec/priorityLevelConfiguration/name"},
}
