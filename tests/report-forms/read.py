"""Reads a report in the form that its name says, checked against the schema of that form, and prints what it found as JSON:
a list of [level, rule, sentence, file, line]."""

import json
import pathlib
import sys

import jsonschema
import xmlschema
from xml.etree import ElementTree

HERE = pathlib.Path(__file__).parent


def conforming(text, schema):
    document = json.loads(text)
    schema = json.loads((HERE / schema).read_text())
    kind = jsonschema.validators.validator_for(schema)
    kind.check_schema(schema)
    kind(schema, format_checker=kind.FORMAT_CHECKER).validate(document)
    return document


def sarif(text):
    (run,) = conforming(text, "sarif-2.1.0.schema.json")["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"], result
        (place,) = result["locations"]
        place = place["physicalLocation"]
        sentence = result["message"]["text"]
        yield result["level"], result["ruleId"], sentence, place["artifactLocation"]["uri"], place["region"]["startLine"]


def gitlab(text):
    issues = conforming(text, "gitlab.schema.json")
    assert len({issue["fingerprint"] for issue in issues}) == len(issues), "GitLab shows one of those that are alike"
    for issue in issues:
        level = {"major": "error", "minor": "warning"}[issue["severity"]]
        place = issue["location"]
        yield level, issue["check_name"], issue["description"], place["path"], place["lines"]["begin"]


def junit(text):
    xmlschema.XMLSchema(str(HERE / "junit-10.xsd")).validate(ElementTree.ElementTree(ElementTree.fromstring(text)))
    root = ElementTree.fromstring(text)
    counted = {"failure": "failures", "error": "errors", "skipped": "skipped"}
    for suite in root:
        assert int(suite.get("tests")) == len(suite.findall("testcase")) > 0, suite.attrib
        for element, count in counted.items():
            assert int(suite.get(count)) == len(suite.findall(f"testcase/{element}")), suite.attrib
        for case in suite.iter("testcase"):
            for result in case:
                level = "warning" if result.tag == "skipped" else "error"
                about = "" if suite.get("name") == "proposal" else f"{suite.get('name')}: "
                file, line = (result.text.split(":") + ["", ""])[:2] if result.text else ("", "")
                yield level, result.get("type"), about + result.get("message"), file, int(line or 0)
    for count in ["tests", "failures", "errors"]:
        assert int(root.get(count)) == sum(int(suite.get(count)) for suite in root), root.attrib


def unescaped(text):
    for code, letter in [("%3A", ":"), ("%2C", ","), ("%0D", "\r"), ("%0A", "\n"), ("%25", "%")]:
        text = text.replace(code, letter)
    return text


def github(text):
    """By docs.github.com: `::COMMAND NAME=VALUE,NAME=VALUE::MESSAGE`. Its runner also obeys other commands than these three."""
    for line in text.splitlines():
        _, head, message = line.split("::", 2)
        command, _, properties = head.partition(" ")
        assert command in ("error", "warning", "notice"), line
        known = dict(pair.split("=", 1) for pair in properties.split(","))
        assert known.keys() <= {"file", "line", "col", "title"}, line
        if command != "notice":
            file = unescaped(known.get("file", ""))
            yield command, unescaped(known["title"]), unescaped(message), file, int(known.get("line", 0))


forms = {"sarif": sarif, "gitlab": gitlab, "junit": junit, "github": github}
json.dump(sorted(forms[sys.argv[1]](sys.stdin.read())), sys.stdout)
