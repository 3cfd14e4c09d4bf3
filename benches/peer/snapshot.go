package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/awslabs/operatorpkg/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	_ "sigs.k8s.io/karpenter/pkg/apis/v1" // tells the scheme of NodePools and NodeClaims
)

var nodeClassKind = schema.GroupVersionKind{Group: "karpenter.k8s.aws", Version: "v1", Kind: "EC2NodeClass"}

// nodeClass is an EC2NodeClass as far as Karpenter's scheduler cares: it exists. The catalogue says what its nodes are like.
type nodeClass struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              map[string]any `json:"spec,omitempty"`
}

func init() {
	scheme.Scheme.AddKnownTypeWithName(nodeClassKind, &nodeClass{})
}

func (class *nodeClass) DeepCopyObject() runtime.Object {
	return &nodeClass{TypeMeta: class.TypeMeta, ObjectMeta: *class.ObjectMeta.DeepCopy(), Spec: runtime.DeepCopyJSON(class.Spec)}
}

func (class *nodeClass) GetConditions() []status.Condition { return nil }

func (class *nodeClass) SetConditions([]status.Condition) {}

func (class *nodeClass) StatusConditions(options ...status.ForOption) status.ConditionSet {
	return status.NewReadyConditions().For(class, options...)
}

// readSnapshot reads YAML documents, JSON values and lists of objects. Kinds that nobody knows are skipped, with one notice.
func readSnapshot(path string) ([]client.Object, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	decode := serializer.NewCodecFactory(scheme.Scheme).UniversalDeserializer()
	var objects []client.Object
	skipped := map[string]bool{}
	var take func(raw json.RawMessage) error
	take = func(raw json.RawMessage) error {
		raw = bytes.TrimSpace(raw)
		if len(raw) == 0 || string(raw) == "null" {
			return nil
		}
		var list struct {
			metav1.TypeMeta `json:",inline"`
			Items           []json.RawMessage `json:"items"`
		}
		if err := json.Unmarshal(raw, &list); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if list.Items != nil {
			for _, item := range list.Items {
				if err := take(item); err != nil {
					return err
				}
			}
			return nil
		}
		read, kind, err := decode.Decode(raw, nil, nil)
		if runtime.IsNotRegisteredError(err) {
			skipped[list.GroupVersionKind().GroupKind().String()] = true
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %s: %w", path, list.Kind, err)
		}
		object, isObject := read.(client.Object)
		if !isObject {
			return fmt.Errorf("%s: %s is no object", path, kind.Kind)
		}
		objects = append(objects, object)
		return nil
	}
	documents := yaml.NewYAMLOrJSONDecoder(file, 4096)
	for {
		var document runtime.RawExtension
		if err := documents.Decode(&document); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if err := take(document.Raw); err != nil {
			return nil, err
		}
	}
	if len(skipped) > 0 {
		fmt.Fprintf(os.Stderr, "notice: skipped kinds: %v\n", slices.Sorted(maps.Keys(skipped)))
	}
	return objects, nil
}
