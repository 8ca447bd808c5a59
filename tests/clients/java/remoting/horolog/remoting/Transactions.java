package horolog.remoting;

import com.google.gson.JsonObject;
import horolog.lines.Lines;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;

/** Producers whose transactions end as a test says; when asked, as the first word of the body says. */
final class Transactions implements TransactionListener {
    private final Lines lines;
    private final String name;

    Transactions(Lines lines, String name) {
        this.lines = lines;
        this.name = name;
    }

    TransactionMQProducer producer(String group, RPCHook hook) {
        TransactionMQProducer made = new TransactionMQProducer(group, hook);
        made.setTransactionListener(this);
        return made;
    }

    static Object send(TransactionMQProducer producer, JsonObject asked) throws Exception {
        JsonObject told = asked.getAsJsonObject("message");
        Message message = new Message(Driver.text(asked, "topic"),
            Driver.text(told, "body").getBytes(StandardCharsets.UTF_8));
        return producer.sendMessageInTransaction(message, Driver.text(asked, "end")).getMsgId();
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object end) {
        return state(end.toString());
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        lines.tell(name, "checked", Told.of(message));
        return state(new String(message.getBody(), StandardCharsets.UTF_8).split(" ")[0].toLowerCase());
    }

    private static LocalTransactionState state(String end) {
        if (end.equals("commit")) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }
        return end.equals("rollback") ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.UNKNOW;
    }
}
