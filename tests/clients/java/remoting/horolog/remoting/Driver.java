package horolog.remoting;

import com.google.gson.JsonObject;
import horolog.lines.Lines;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/** The official 4.x client, or the 5.x one that speaks remoting, told by lines what to do. */
public final class Driver {
    private final Lines lines = new Lines();
    private final Map<String, DefaultMQProducer> producers = new ConcurrentHashMap<>();

    public static void main(String[] arguments) throws Exception {
        new Driver().serve();
    }

    private void serve() throws Exception {
        Sends sends = new Sends(producers);
        Requests requests = new Requests(producers);
        Consumers consumers = new Consumers(lines, requests);
        lines.on("producer", this::producer);
        lines.on("send", sends::send);
        lines.on("request", requests::request);
        lines.on("recall", sends::recall);
        lines.on("transaction", asked -> Transactions.send((TransactionMQProducer) producer(asked, "by"), asked));
        lines.on("queues", asked -> {
            List<Object> found = new ArrayList<>();
            for (MessageQueue queue : producer(asked, "by").fetchPublishMessageQueues(text(asked, "topic"))) {
                Map<String, Object> fields = new LinkedHashMap<>();
                fields.put("broker", queue.getBrokerName());
                fields.put("queue", queue.getQueueId());
                fields.put("least", producer(asked, "by").minOffset(queue));
                fields.put("next", producer(asked, "by").maxOffset(queue));
                if (asked.has("time_ms")) {
                    fields.put("at_time", producer(asked, "by").searchOffset(queue, asked.get("time_ms").getAsLong()));
                }
                found.add(fields);
            }
            return found;
        });
        lines.on("view", asked -> Told.of(producer(asked, "by").viewMessage(
            text(asked, "topic"), text(asked, "message"))));
        lines.on("query", asked -> {
            List<Object> found = new ArrayList<>();
            for (MessageExt message : producer(asked, "by").queryMessage(text(asked, "topic"), text(asked, "key"), 64,
                asked.get("from_ms").getAsLong(), asked.get("to_ms").getAsLong()).getMessageList()) {
                found.add(Told.of(message));
            }
            return found;
        });
        lines.on("push", consumers::push);
        lines.on("lite", consumers::lite);
        lines.on("poll", consumers::poll);
        lines.on("seek", consumers::seek);
        lines.on("commit", consumers::commit);
        lines.on("committed", consumers::committed);
        lines.on("pull", consumers::pull);
        lines.on("pulled", consumers::pulled);
        lines.on("pull_all", consumers::pullAll);
        lines.on("mqadmin", new Admin()::run);
        lines.on("close", asked -> {
            DefaultMQProducer producer = producers.remove(text(asked, "name"));
            if (producer != null) {
                producer.shutdown();
            } else {
                consumers.close(text(asked, "name"));
            }
            return true;
        });
        lines.serve();
    }

    private DefaultMQProducer producer(JsonObject asked, String name) {
        return producers.get(text(asked, name));
    }

    private Object producer(JsonObject asked) throws Exception {
        DefaultMQProducer made = asked.has("checks")
            ? new Transactions(lines, text(asked, "name")).producer(text(asked, "group"), hook(asked))
            : new DefaultMQProducer(text(asked, "group"), hook(asked));
        configure(made, asked);
        made.setSendMsgTimeout(10_000);
        if (asked.has("compress_over")) {
            made.setCompressMsgBodyOverHowmuch(asked.get("compress_over").getAsInt());
        }
        made.start();
        producers.put(text(asked, "name"), made);
        return true;
    }

    static String text(JsonObject asked, String name) {
        return asked.get(name).getAsString();
    }

    static void configure(ClientConfig client, JsonObject asked) {
        client.setNamesrvAddr(text(asked, "namesrv"));
        client.setInstanceName(text(asked, "name"));
        client.setUseTLS(asked.has("tls"));
        client.setPersistConsumerOffsetInterval(500); // that of its own is five seconds
    }

    /** Signs what the client asks, when the test gives a key. */
    static RPCHook hook(JsonObject asked) {
        String secret = asked.has("secret") ? text(asked, "secret") : "secret-1";
        return asked.has("key") ? new AclClientRPCHook(new SessionCredentials(text(asked, "key"), secret)) : null;
    }
}
