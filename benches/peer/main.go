// Command peer makes the inputs of the comparison with Karpenter, and runs Karpenter's own scheduler on them.
//
// Nothing of Karpenter is here but calls of what its module exports. `run` beside this file starts both sides.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
)

const usage = `peer: inputs for a comparison with Karpenter, and Karpenter's scheduler on them

  peer generate --kind KIND [--pods N] [--seed 42] --out DIRECTORY
      writes snapshot.json and catalog.csv; the same seed gives the same bytes
  peer solve --snapshot FILE --catalog FILE [--repeat 3] [--cores 1] [--preference-policy Respect|Ignore]
      prints what Karpenter's scheduler makes of them, and what that took, as JSON

kinds:
`

// misuse is an error of whoever called, answered with exit code 2.
type misuse struct{ error }

func main() {
	err := command(os.Args[1:])
	if err == nil {
		return
	}
	fmt.Fprintf(os.Stderr, "error: %v\n", err)
	if _, isMisuse := err.(misuse); isMisuse {
		os.Exit(2)
	}
	os.Exit(1)
}

func command(arguments []string) error {
	if len(arguments) == 0 || arguments[0] == "--help" || arguments[0] == "-h" || arguments[0] == "help" {
		fmt.Print(usage)
		for _, kind := range kinds {
			fmt.Printf("  %-20s %6d pods  %s\n", kind.name, kind.pods, kind.about)
		}
		return nil
	}
	flags := flag.NewFlagSet(arguments[0], flag.ExitOnError)
	switch arguments[0] {
	case "generate":
		kind := flags.String("kind", "", "what to make: "+strings.Join(kindNames(), ", "))
		pods := flags.Int("pods", 0, "how many pods wait; 0 is the number of the kind")
		seed := flags.Uint64("seed", 42, "what chance is drawn from")
		out := flags.String("out", "", "directory for snapshot.json and catalog.csv, made if it is not there")
		_ = flags.Parse(arguments[1:])
		if *out == "" || *kind == "" || flags.NArg() > 0 {
			return misuse{fmt.Errorf("generate needs --kind and --out, and nothing else; see peer --help")}
		}
		input, err := generate(*kind, *pods, *seed)
		if err != nil {
			return misuse{err}
		}
		return input.write(*out)
	case "solve":
		var request request
		flags.StringVar(&request.snapshot, "snapshot", "", "Kubernetes objects, YAML or JSON")
		flags.StringVar(&request.catalog, "catalog", "", "instance types and prices, CSV")
		flags.IntVar(&request.repeat, "repeat", 3, "how often to solve; the best time counts")
		flags.IntVar(&request.cores, "cores", 1, "GOMAXPROCS, and how many candidates the scheduler looks at concurrently")
		policy := flags.String("preference-policy", "Respect", "Respect or Ignore")
		_ = flags.Parse(arguments[1:])
		request.ignoresPreferences = *policy == "Ignore"
		if request.snapshot == "" || request.catalog == "" || flags.NArg() > 0 {
			return misuse{fmt.Errorf("solve needs --snapshot and --catalog, and nothing else; see peer --help")}
		}
		if request.repeat < 1 || request.cores < 1 {
			return misuse{fmt.Errorf("--repeat and --cores start at 1")}
		}
		if *policy != "Respect" && *policy != "Ignore" {
			return misuse{fmt.Errorf("--preference-policy is Respect or Ignore, not %q", *policy)}
		}
		figures, err := solve(request)
		if err != nil {
			return err
		}
		printer := json.NewEncoder(os.Stdout)
		printer.SetIndent("", "  ")
		return printer.Encode(figures)
	}
	return misuse{fmt.Errorf("there is no command %q; see peer --help", arguments[0])}
}
