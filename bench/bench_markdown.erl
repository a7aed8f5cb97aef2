%% Tables and numbers as Markdown: what all reports print alike.
-module(bench_markdown).

-export([table/2, us/1, ms/1, mib/1, ratio/1]).

-spec table([iodata()], [[iodata()]]) -> iodata().
table(Titles, Rows) ->
    Line = fun(Cells) -> ["| ", lists:join(" | ", Cells), " |\n"] end,
    [Line(Titles), Line(["---" || _ <- Titles])
     | [Line(Row) || Row <- Rows]].

-spec us(number()) -> iodata().
us(Micros) -> io_lib:format("~.1f", [float(Micros)]).

-spec ms(number()) -> iodata().
ms(Millis) -> io_lib:format("~.2f ms", [float(Millis)]).

-spec mib(number()) -> iodata().
mib(Bytes) -> io_lib:format("~.2f MiB", [Bytes / 1048576]).

-spec ratio(number()) -> iodata().
ratio(Ratio) -> io_lib:format("~.2f", [float(Ratio)]).
