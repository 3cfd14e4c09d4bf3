package main

import (
	"context"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenter "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// store serves the objects of a snapshot as the cache of a controller serves those of a cluster: from memory, copied when read
// unless the reader asks for the originals, pods found by their node. It cannot be written to, and planning writes nothing.
type store struct {
	client.Client // nil: whatever is not below is never called
	objects       map[reflect.Type][]client.Object
	found         map[reflect.Type]map[client.ObjectKey]client.Object
	podsOf        map[string][]client.Object
}

func newStore(objects []client.Object) *store {
	kept := &store{
		objects: map[reflect.Type][]client.Object{},
		found:   map[reflect.Type]map[client.ObjectKey]client.Object{},
		podsOf:  map[string][]client.Object{},
	}
	for _, object := range objects {
		kind := reflect.TypeOf(object).Elem()
		kept.objects[kind] = append(kept.objects[kind], object)
		if kept.found[kind] == nil {
			kept.found[kind] = map[client.ObjectKey]client.Object{}
		}
		kept.found[kind][client.ObjectKeyFromObject(object)] = object
		if pod, isPod := object.(*corev1.Pod); isPod {
			kept.podsOf[pod.Spec.NodeName] = append(kept.podsOf[pod.Spec.NodeName], pod)
		}
	}
	return kept
}

// each calls take with a copy of every object of type T, in the order of the file.
func each[T any](kept *store, take func(*T) error) error {
	for _, object := range kept.objects[reflect.TypeFor[T]()] {
		if err := take(object.DeepCopyObject().(any).(*T)); err != nil {
			return err
		}
	}
	return nil
}

func (kept *store) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	kind := reflect.TypeOf(into).Elem()
	object, isKnown := kept.found[kind][key]
	if !isKnown {
		return errors.NewNotFound(schema.GroupResource{Resource: kind.Name()}, key.String())
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(object.DeepCopyObject()).Elem())
	return nil
}

func (kept *store) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	var asked client.ListOptions
	asked.ApplyOptions(options)
	items, isList := reflect.TypeOf(into).Elem().FieldByName("Items")
	if !isList {
		return fmt.Errorf("%T has no items", into)
	}
	kind := items.Type.Elem()
	from := kept.objects[kind]
	if asked.FieldSelector != nil && kind == reflect.TypeFor[corev1.Pod]() {
		if node, isExact := asked.FieldSelector.RequiresExactMatch("spec.nodeName"); isExact {
			from = kept.podsOf[node]
		}
	}
	asIs := asked.UnsafeDisableDeepCopy != nil && *asked.UnsafeDisableDeepCopy
	var found []runtime.Object
	for _, object := range from {
		fits, err := answers(object, &asked)
		if err != nil {
			return err
		}
		switch {
		case !fits:
		case asIs:
			found = append(found, object)
		default:
			found = append(found, object.DeepCopyObject())
		}
	}
	return meta.SetList(into, found)
}

// answers tells whether object is one of those asked for.
func answers(object client.Object, asked *client.ListOptions) (bool, error) {
	if asked.Namespace != "" && object.GetNamespace() != asked.Namespace {
		return false, nil
	}
	if asked.LabelSelector != nil && !asked.LabelSelector.Matches(labelsOf(object.GetLabels())) {
		return false, nil
	}
	if asked.FieldSelector == nil {
		return true, nil
	}
	for _, field := range asked.FieldSelector.Requirements() {
		value, isKnown := fieldOf(object, field.Field)
		if !isKnown {
			return false, fmt.Errorf("%T cannot be found by %s", object, field.Field)
		}
		if value != field.Value {
			return false, nil
		}
	}
	return true, nil
}

// labelsOf lets a selector read labels.
type labelsOf map[string]string

func (labels labelsOf) Has(key string) bool { _, has := labels[key]; return has }

func (labels labelsOf) Get(key string) string { return labels[key] }

func (labels labelsOf) Lookup(key string) (string, bool) {
	value, has := labels[key]
	return value, has
}

func fieldOf(object client.Object, field string) (string, bool) {
	switch object := object.(type) {
	case *corev1.Pod:
		return object.Spec.NodeName, field == "spec.nodeName"
	case *storagev1.VolumeAttachment:
		return object.Spec.NodeName, field == "spec.nodeName"
	case *corev1.Node:
		return object.Spec.ProviderID, field == "spec.providerID"
	case *karpenter.NodeClaim:
		return object.Status.ProviderID, field == "status.providerID"
	}
	return "", false
}
