// A client and a server of gRPC for Node, on Unix sockets, with messages as bytes. What they saw goes to stdout.
const grpc = require("@grpc/grpc-js");
const asIs = (bytes) => bytes;
const [role, path] = process.argv.slice(2);

if (role === "call") {
  const client = new grpc.Client(`unix:${path}`, grpc.credentials.createInsecure(), {
    "grpc.default_authority": "localhost",
  });
  const service = "/v1beta1.DevicePlugin/";
  const request = Buffer.from(process.argv[4], "hex");
  client.makeUnaryRequest(service + "Allocate", asIs, asIs, request, (error, answer) => {
    const refused = { deadline: Date.now() + 5000 };
    client.makeUnaryRequest(service + "Nope", asIs, asIs, Buffer.alloc(0), refused, (nope) => {
      const stream = client.makeServerStreamRequest(service + "ListAndWatch", asIs, asIs, Buffer.alloc(0));
      stream.on("error", () => {});
      stream.on("data", (list) => {
        console.log(JSON.stringify({
          error, answer: answer && answer.toString("hex"), nope: [nope.code, nope.details], size: list.length,
        }));
        stream.cancel();
        client.close();
      });
    });
  });
} else {
  const server = new grpc.Server();
  const method = (name, responseStream) => ({
    path: `/v1beta1.DevicePlugin/${name}`, requestStream: false, responseStream,
    requestSerialize: asIs, requestDeserialize: asIs, responseSerialize: asIs, responseDeserialize: asIs,
  });
  server.addService({ Allocate: method("Allocate", false), ListAndWatch: method("ListAndWatch", true) }, {
    Allocate: (call, done) =>
      call.request.length ? done(null, Buffer.from(process.argv[4], "hex"))
        : done({ code: grpc.status.NOT_FOUND, details: "nothing é" }),
    ListAndWatch: (call) => call.write(Buffer.from(process.argv[4], "hex")),
  });
  server.bindAsync(`unix:${path}`, grpc.ServerCredentials.createInsecure(), () => console.log("up"));
}
