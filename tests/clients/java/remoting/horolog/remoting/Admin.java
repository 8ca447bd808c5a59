package horolog.remoting;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** The commands of mqadmin, one after the other in this process; gives what each printed. */
final class Admin {
    synchronized Object run(JsonObject asked) {
        List<String> words = new ArrayList<>();
        for (JsonElement word : asked.getAsJsonArray("words")) {
            words.add(word.getAsString());
        }
        System.setProperty("rocketmq.namesrv.addr", Driver.text(asked, "namesrv"));
        PrintStream before = System.out;
        PrintStream errors = System.err;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        try (PrintStream out = new PrintStream(printed, true, StandardCharsets.UTF_8)) {
            System.setOut(out);
            System.setErr(out);
            MQAdminStartup.main0(words.toArray(new String[0]), null);
        } finally {
            System.setOut(before);
            System.setErr(errors);
        }
        return printed.toString(StandardCharsets.UTF_8);
    }
}
