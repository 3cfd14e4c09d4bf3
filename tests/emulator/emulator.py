"""EC2 for tests: moto, and in front of it what EC2 does and moto does not.

    emulator.py [--port N] [--families m5,c5,...]

With families it sells nothing else, and describes itself much sooner. Prints its address as the first line, and ends when its standard input does, so that no test leaves it behind.
Everything that is not about a fault goes through to moto unchanged. Control, as JSON:

    POST /_emulator/no-capacity   [["m5.large", "us-east-1a", "spot"], ...]  replaces the offerings that have no capacity;
                                  "*" stands for any value, and a fourth word for the code of the refusal
    POST /_emulator/full-subnets  ["subnet-...", ...]   replaces the subnets without a free address
    POST /_emulator/fail          {"action": "CreateFleet", "code": "RequestLimitExceeded", "message": "", "times": 2,
                                   "status": 503, "after": false}   fails the next calls; `after` carries them out first,
                                  so that the caller loses the answer
    POST /_emulator/delays        {"running": 0.5, "terminated": 0.5, "visible": 0.5}   seconds until a machine gets there;
                                  "answered": until who buys is told, "listed": until the price list answers
    POST /_emulator/parameters    {"/aws/service/...": "ami-..."}   adds public parameters of Systems Manager
    POST /_emulator/cluster       {"name": "shop", "endpoint": "https://...", "group": "sg-..."}   where the API server of a
                                  cluster of EKS is, and the security group that EKS made for it
    GET  /_emulator/calls         [{"who", "service", "action", "parameters", "at"}, ...] in the order of arrival: `who`
                                  is an access key, `at` in seconds since 1970
    GET  /_emulator/instances     [{"id", "type", "zone", "state", "tags", "user_data", "lifecycle", "token"}, ...] of all
                                  states; `token` is that of the order by which it was bought
"""

import argparse
import base64
import collections
import csv
import gc
import hashlib
import io
import json
import os
import re
import sys
import tempfile
import threading
import time
import urllib.parse
import uuid
import zlib
from xml.sax.saxutils import escape

os.environ.setdefault("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")
# Moto holds large tables for good: looking through them for garbage takes as long as everything else.
gc.disable()

from moto.ec2.models import ec2_backends  # noqa: E402
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES  # noqa: E402
from moto.eks.models import eks_backends  # noqa: E402
from moto.iam.models import ManagedPolicy  # noqa: E402
from moto.moto_server.werkzeug_app import (  # noqa: E402
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import make_server  # noqa: E402

ACCOUNT = "123456789012"
XMLNS = "http://ec2.amazonaws.com/doc/2016-11-15/"
# What moto answers with a failure of its own, and a cluster without any of it answers with nothing.
EMPTY_ANSWERS = {
    "DescribeCapacityReservations": "capacityReservationSet",
    "DescribePlacementGroups": "placementGroupSet",
}
# What EC2 sells does not change while a test runs, and moto takes seconds to write it down.
UNCHANGING = {"DescribeInstanceTypes", "DescribeInstanceTypeOfferings"}


def price_table():
    """Dollars an hour on demand in us-east-1, by type."""
    with open(os.path.join(os.path.dirname(__file__), "../../src/model/catalog/data/prices.csv")) as file:
        rows = list(csv.reader(line for line in file if not line.startswith("#")))
    return {row[0]: float(row[1]) for row in rows[1:] if row[1]}


PRICES = price_table()


def spot_price(kind, zone):
    """Dollars an hour: a quarter to a half of what it costs on demand, another part for each type, least in the first zone."""
    part = zlib.crc32(kind.encode()) % 1000 / 1000
    return PRICES.get(kind, 1.0) * (0.25 + 0.2 * part + 0.01 * (ord((zone or "a")[-1]) - ord("a")))


def policies_as_text():
    """Lets CloudFormation take the document of a managed policy as text, which is how names get into keys of conditions."""
    plain = ManagedPolicy.create_from_cloudformation_json.__func__

    def create(cls, resource_name, cloudformation_json, account_id, region_name, **rest):
        properties = cloudformation_json["Properties"]
        if isinstance(properties["PolicyDocument"], str):
            properties = {**properties, "PolicyDocument": json.loads(properties["PolicyDocument"])}
            cloudformation_json = {**cloudformation_json, "Properties": properties}
        return plain(cls, resource_name, cloudformation_json, account_id, region_name, **rest)

    ManagedPolicy.create_from_cloudformation_json = classmethod(create)


class Emulator:
    """A WSGI application around moto's."""

    def __init__(self, moto):
        self.moto = moto
        # One call at a time: moto's backends are dictionaries without locks.
        self.lock = threading.RLock()
        self.calls = []
        self.no_capacity = []
        self.full_subnets = []
        self.failures = []
        self.delays = {}
        self.parameters = {}
        self.tokens = {}
        self.hidden = {}
        self.written = {}
        self.bought = {}

    # ------------------------------------------------------------------------------------------------ one request

    def __call__(self, environ, start_response):
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length)
        path = environ.get("PATH_INFO", "/")
        if path.startswith("/_emulator/"):
            status, kind, text = self.control(environ["REQUEST_METHOD"], path.removeprefix("/_emulator/"), body)
        else:
            call = Call(environ, body)
            if call.action == "ReceiveMessage":
                # A long poll must not hold everybody else up.
                self.record(call)
                status, kind, text = self.forward(call)
            else:
                with self.lock:
                    status, kind, text = self.answer(call)
                if call.action == "CreateFleet":
                    time.sleep(self.delays.get("answered", 0))
                if call.action == "GetProducts":
                    time.sleep(self.delays.get("listed", 0))
        data = text if isinstance(text, bytes) else text.encode()
        start_response(status, [("Content-Type", kind), ("Content-Length", str(len(data)))])
        return [data]

    def answer(self, call):
        self.record(call)
        failure = self.take_failure(call.action)
        if failure and not failure.get("after"):
            return call.error(failure["code"], failure.get("message", "injected"), failure.get("status", 400))
        token = call.parameters.get("ClientToken")
        if token and call.service == "ec2":
            key = (call.action, token)
            said = call.fingerprint()
            if key in self.tokens and self.tokens[key][0] != said:
                return call.error("IdempotentParameterMismatch", "The token was used with other parameters.", 400)
            if key not in self.tokens:
                answer = self.carry_out(call)
                if not answer[0].startswith("200"):
                    return answer
                self.tokens[key] = (said, answer)
            answer = self.tokens[key][1]
        else:
            answer = self.carry_out(call)
        if failure:
            return call.error(failure["code"], failure.get("message", "injected"), failure.get("status", 400))
        return answer

    def carry_out(self, call):
        handler = getattr(self, f"on_{call.service}_{call.action}", None)
        if handler:
            return handler(call)
        if call.service == "ec2" and call.action in EMPTY_ANSWERS:
            return call.xml(f"<{EMPTY_ANSWERS[call.action]}/>")
        if call.service == "ec2" and call.action in UNCHANGING:
            key = (call.region, call.fingerprint())
            if key not in self.written:
                self.written[key] = self.written_once(call)
            return self.written[key]
        return self.forward(call)

    def written_once(self, call):
        """What moto answers, from a file beside it if another emulator that sells the same has asked before."""
        said = json.dumps([call.region, call.fingerprint(), sorted(INSTANCE_TYPES)])
        path = os.path.join(sys.prefix, "written", hashlib.sha256(said.encode()).hexdigest())
        try:
            with open(path) as file:
                status, kind, text = json.load(file)
                return status, kind, text.encode()
        except FileNotFoundError:
            status, kind, data = self.forward(call)
        if status.startswith("200"):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=os.path.dirname(path), delete=False) as file:
                json.dump([status, kind, data.decode()], file)
            os.replace(file.name, path)
        return status, kind, data

    def forward(self, call, body=None):
        environ = dict(call.environ)
        body = call.body if body is None else body
        environ["wsgi.input"] = io.BytesIO(body)
        environ["CONTENT_LENGTH"] = str(len(body))
        seen = {}

        def start_response(status, headers, exc_info=None):
            seen["status"] = status
            seen["kind"] = dict((name.lower(), value) for name, value in headers).get("content-type", "text/xml")

        parts = self.moto(environ, start_response)
        data = b"".join(parts)
        return seen["status"], seen["kind"], data

    def record(self, call):
        with self.lock:
            self.calls.append(
                {
                    "who": call.who,
                    "service": call.service,
                    "action": call.action,
                    "parameters": call.parameters,
                    "at": call.arrived,
                }
            )

    def take_failure(self, action):
        for failure in self.failures:
            if failure["action"] == action and failure.get("times", 1) > 0:
                failure["times"] = failure.get("times", 1) - 1
                return failure
        return None

    # ------------------------------------------------------------------------------------------------ what EC2 does

    def on_ec2_DescribeSpotPriceHistory(self, call):
        """moto sells every type for the same, since 2006."""
        key = (call.region, call.fingerprint())
        if key not in self.written:
            status, kind, data = self.written_once(call)
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())

            def priced(item):
                kind, zone = (re.search(f"<{name}>(.*?)</{name}>", item[0])[1] for name in ("instanceType", "availabilityZone"))
                text = re.sub("(?<=<spotPrice>).*?(?=</spotPrice>)", f"{spot_price(kind, zone):.6f}", item[0])
                return re.sub("(?<=<timestamp>).*?(?=</timestamp>)", now, text)

            text = re.sub("<item>.*?</item>", priced, data.decode(), flags=re.DOTALL)
            self.written[key] = (status, kind, text.encode())
        return self.written[key]

    def on_ec2_CreateFleet(self, call):
        """Buys of the cheapest override that has capacity, whatever the order says of priorities, and tells which had none."""
        capacity_type = call.parameters.get("TargetCapacitySpecification.DefaultTargetCapacityType", "on-demand")
        overrides = []
        pattern = re.compile(r"LaunchTemplateConfigs\.(\d+)\.Overrides\.(\d+)\.(\w+)$")
        found = collections.defaultdict(dict)
        for name, value in call.parameters.items():
            match = pattern.match(name)
            if match:
                found[(int(match[1]), int(match[2]))][match[3]] = value
        for (config, index), override in sorted(found.items()):
            kind, zone = override.get("InstanceType"), override.get("AvailabilityZone")
            price = spot_price(kind, zone) if capacity_type == "spot" else PRICES.get(kind, float("inf"))
            overrides.append((price, config, index, override))
        overrides.sort(key=lambda entry: entry[:3])
        errors = []
        chosen = None
        for _, config, _, override in overrides:
            code = self.refusal(override, capacity_type)
            if code is None:
                chosen = (config, override)
                break
            errors.append((config, override, code))
        if overrides and chosen is None:
            fleet = f"fleet-{uuid.uuid4()}"
            return call.xml(f"<fleetId>{fleet}</fleetId><fleetInstanceSet/>" + self.error_set(call, errors, capacity_type))
        body = call.body
        if chosen:
            body = urllib.parse.urlencode(self.only(call, *chosen)).encode()
        status, kind, data = self.forward(call, body)
        if not status.startswith("200"):
            return status, kind, data
        self.after_purchase(call, data)
        if errors:
            text = data.decode()
            text = re.sub(r"<errorSet\s*/>|<errors\s*/>", "", text)
            data = text.replace("</CreateFleetResponse>", self.error_set(call, errors, capacity_type) + "</CreateFleetResponse>")
        return status, kind, data

    def refusal(self, override, capacity_type):
        kind, zone = override.get("InstanceType"), override.get("AvailabilityZone")
        if kind not in INSTANCE_TYPES:
            return "InvalidParameterValue"
        for offering in self.no_capacity:
            if all(asked in ("*", has) for asked, has in zip(offering, (kind, zone, capacity_type))):
                return offering[3] if len(offering) > 3 else "InsufficientInstanceCapacity"
        if override.get("SubnetId") in self.full_subnets:
            return "InsufficientFreeAddressesInSubnet"
        return None

    @staticmethod
    def only(call, config, override):
        """The order with nothing but the chosen override."""
        kept = {}
        for name, value in call.parameters.items():
            if not name.startswith("LaunchTemplateConfigs."):
                kept[name] = value
            elif name.startswith(f"LaunchTemplateConfigs.{config}.LaunchTemplateSpecification."):
                kept["LaunchTemplateConfigs.1." + name.split(".", 2)[2]] = value
        for name, value in override.items():
            kept[f"LaunchTemplateConfigs.1.Overrides.1.{name}"] = value
        return kept

    @staticmethod
    def error_set(call, errors, capacity_type):
        items = []
        for config, override, code in errors:
            name = call.parameters.get(
                f"LaunchTemplateConfigs.{config}.LaunchTemplateSpecification.LaunchTemplateName", ""
            )
            items.append(
                "<item><launchTemplateAndOverrides><launchTemplateSpecification>"
                f"<launchTemplateName>{escape(name)}</launchTemplateName><version>$Latest</version>"
                "</launchTemplateSpecification><overrides>"
                f"<instanceType>{escape(override.get('InstanceType', ''))}</instanceType>"
                f"<availabilityZone>{escape(override.get('AvailabilityZone', ''))}</availabilityZone>"
                f"<subnetId>{escape(override.get('SubnetId', ''))}</subnetId>"
                "</overrides></launchTemplateAndOverrides>"
                f"<lifecycle>{capacity_type}</lifecycle><errorCode>{code}</errorCode>"
                "<errorMessage>There is no Spot or On-Demand capacity available that matches your request.</errorMessage></item>"
            )
        return f"<errorSet>{''.join(items)}</errorSet>"

    def after_purchase(self, call, data):
        for found in set(re.findall(r"\bi-[0-9a-f]+\b", data.decode())):
            instance = self.backend(call).get_instance(found)
            self.bought[found] = call.parameters.get("ClientToken")
            if self.delays.get("visible"):
                self.hidden[found] = time.monotonic() + self.delays["visible"]
            if self.delays.get("running"):
                self.move_later(instance, (0, "pending"), (16, "running"), self.delays["running"])

    def on_ec2_TerminateInstances(self, call):
        """Whoever asks again is told how far it is, as by EC2; moto always says that it has just begun."""
        found = [self.known(call, value) for name, value in call.parameters.items() if name.startswith("InstanceId.")]
        before = [(instance, instance._state.name) for instance in found if instance]
        status, kind, data = self.forward(call)
        if not status.startswith("200"):
            return status, kind, data
        for instance, state in before:
            if state == "terminated":
                data = self.told_gone(data, instance.id)
            elif self.delays.get("terminated"):
                self.move_later(instance, (32, "shutting-down"), (48, "terminated"), self.delays["terminated"])
        return status, kind, data

    def known(self, call, name):
        try:
            return self.backend(call).get_instance(name)
        except Exception:  # moto has an error of its own for each kind of wrong name, and answers with it when it is asked
            return None

    @staticmethod
    def told_gone(data, name):
        said = r"(<instanceId>%s</instanceId>.*?<currentState>\s*<code>)\d+(</code>\s*<name>)[a-z-]+" % re.escape(name)
        return re.sub(said, r"\g<1>48\g<2>terminated", data.decode(), count=1, flags=re.DOTALL).encode()

    def on_ec2_DescribeInstances(self, call):
        """What was bought a moment ago does not show everywhere yet."""
        now = time.monotonic()
        hidden = [instance for instance, until in self.hidden.items() if now < until]
        if not hidden:
            return self.forward(call)
        reservations = self.backend(call).reservations
        kept = {}
        for key, reservation in list(reservations.items()):
            if any(instance.id in hidden for instance in reservation.instances):
                kept[key] = reservations.pop(key)
        try:
            return self.forward(call)
        finally:
            reservations.update(kept)

    def on_ec2_RegisterImage(self, call):
        """moto forgets what an image is made for."""
        status, kind, data = self.forward(call)
        found = re.search(r"<imageId>(ami-[0-9a-f]+)</imageId>", data.decode())
        if found:
            image = self.backend(call).amis[found[1]]
            image.architecture = call.parameters.get("Architecture", "i386")
        return status, kind, data

    def on_ssm_GetParameter(self, call):
        name = json.loads(call.body or b"{}").get("Name")
        if name not in self.parameters:
            return self.forward(call)
        answer = {"Parameter": {"Name": name, "Type": "String", "Value": self.parameters[name], "Version": 1}}
        return "200 OK", "application/x-amz-json-1.1", json.dumps(answer)

    def on_pricing_GetProducts(self, call):
        """The price list, in the form of its documents and in pages. All is a tenth dearer than in the table that is part of the program, so that it shows which of them is in force."""
        wanted = {one["Field"]: one["Value"] for one in call.parameters["Filters"]}
        is_metal = "bare metal" in wanted["productFamily"]
        names = sorted(name for name in PRICES if name in INSTANCE_TYPES and ("metal" in name) == is_metal)
        begin, size = int(call.parameters.get("NextToken", 0)), call.parameters["MaxResults"]
        products = []
        for name in names[begin : begin + size]:
            dimension = {"unit": "Hrs", "pricePerUnit": {"USD": f"{1.1 * PRICES[name]:.10f}"}}
            products.append(
                {
                    "product": {"attributes": {"instanceType": name, "regionCode": wanted["regionCode"]}},
                    "terms": {"OnDemand": {f"{name}.JRTCKXETXF": {"priceDimensions": {f"{name}.1": dimension}}}},
                }
            )
        answer = {"FormatVersion": "aws_v1", "PriceList": [json.dumps(product) for product in products]}
        if begin + size < len(names):
            answer["NextToken"] = str(begin + size)
        return "200 OK", "application/x-amz-json-1.1", json.dumps(answer)

    def move_later(self, instance, now, then, seconds):
        def move(state):
            instance._state.code, instance._state.name = state

        move(now)

        def arrive():
            with self.lock:
                # A machine that was ended meanwhile does not come back.
                if instance._state.name == now[1]:
                    move(then)

        timer = threading.Timer(seconds, arrive)
        timer.daemon = True
        timer.start()

    @staticmethod
    def backend(call):
        return ec2_backends[ACCOUNT][call.region]

    # ----------------------------------------------------------------------------------------------------- control

    def control(self, method, name, body):
        said = json.loads(body) if body else None
        with self.lock:
            if name == "calls":
                answer = self.calls
            elif name == "instances":
                answer = self.instances()
            elif name == "no-capacity":
                self.no_capacity, answer = said, {}
            elif name == "full-subnets":
                self.full_subnets, answer = said, {}
            elif name == "fail":
                self.failures.append(said)
                answer = {}
            elif name == "delays":
                self.delays, answer = said, {}
            elif name == "parameters":
                self.parameters.update(said)
                answer = {}
            elif name == "cluster":
                clusters = [each.clusters.get(said["name"]) for each in eks_backends[ACCOUNT].values()]
                for cluster in filter(None, clusters):
                    cluster.endpoint = said["endpoint"]
                    cluster.resources_vpc_config["clusterSecurityGroupId"] = said["group"]
                answer = {}
            else:
                return "404 NOT FOUND", "text/plain", f"{method} {name} is not known here"
            return "200 OK", "application/json", json.dumps(answer)

    def instances(self):
        listed = []
        for region in sorted(ec2_backends[ACCOUNT]):
            for reservation in ec2_backends[ACCOUNT][region].reservations.values():
                for instance in reservation.instances:
                    data = instance.user_data
                    data = data[0] if isinstance(data, list) else data
                    data = data.decode() if isinstance(data, bytes) else str(data or "")
                    try:
                        data = base64.b64decode(data, validate=True).decode()
                    except ValueError:
                        pass
                    listed.append(
                        {
                            "id": instance.id,
                            "type": instance.instance_type,
                            "zone": instance._placement.zone,
                            "state": instance._state.name,
                            "tags": {tag["key"]: tag["value"] for tag in instance.get_tags()},
                            "user_data": data,
                            "lifecycle": instance.lifecycle or "on-demand",
                            "token": self.bought.get(instance.id),
                        }
                    )
        return listed


class Call:
    """One request to AWS, as far as the wire says what it is."""

    def __init__(self, environ, body):
        self.arrived = time.time()
        self.environ = environ
        self.body = body
        scope = re.search(r"Credential=([^/]+)/\d+/([^/]+)/([^/]+)/", environ.get("HTTP_AUTHORIZATION", ""))
        self.who, self.region, self.service = scope.groups() if scope else ("", "us-east-1", "unknown")
        target = environ.get("HTTP_X_AMZ_TARGET", "")
        if target:
            self.action = target.rsplit(".", 1)[-1]
            self.parameters = json.loads(body or b"{}")
        else:
            self.parameters = dict(urllib.parse.parse_qsl(body.decode(errors="replace"), keep_blank_values=True))
            self.action = self.parameters.get("Action", "unknown")

    def fingerprint(self):
        left_out = {"ClientToken", "StartTime"}
        said = sorted((name, value) for name, value in self.parameters.items() if name not in left_out)
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()

    def xml(self, inner, status="200 OK"):
        text = (
            f'<{self.action}Response xmlns="{XMLNS}"><requestId>{uuid.uuid4()}</requestId>'
            f"{inner}</{self.action}Response>"
        )
        return status, "text/xml", text

    def error(self, code, message, status):
        if "HTTP_X_AMZ_TARGET" in self.environ:
            text = json.dumps({"__type": code, "message": message})
            return f"{status} ERROR", "application/x-amz-json-1.1", text
        text = (
            f"<Response><Errors><Error><Code>{escape(code)}</Code><Message>{escape(message)}</Message></Error></Errors>"
            f"<RequestID>{uuid.uuid4()}</RequestID></Response>"
        )
        return f"{status} ERROR", "text/xml", text


def sell_only(families):
    """Forgets all types of other families."""
    for kind in [kind for kind in INSTANCE_TYPES if kind.split(".")[0] not in families]:
        del INSTANCE_TYPES[kind]
    for regions in INSTANCE_TYPE_OFFERINGS.values():
        for offerings in regions.values():
            offerings[:] = [offering for offering in offerings if offering["InstanceType"] in INSTANCE_TYPES]


class QuietHandler(MotoRequestHandler):
    def log(self, *_):
        pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--families", default="")
    arguments = parser.parse_args()
    if arguments.families:
        sell_only(set(arguments.families.split(",")))
    policies_as_text()
    application = Emulator(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", arguments.port, application, threaded=True, request_handler=QuietHandler)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)

    def end_with_parent():
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=end_with_parent, daemon=True).start()
    gc.freeze()
    gc.set_threshold(50_000)
    gc.enable()
    server.serve_forever()


if __name__ == "__main__":
    main()
