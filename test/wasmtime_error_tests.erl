%% Messages: what is shown of a user's term, and that it costs no more than what is shown.
-module(wasmtime_error_tests).
-include_lib("eunit/include/eunit.hrl").

text(Term) -> wasmtime_error:text("~0tp", [Term]).

%% A small term is shown as it is, of whatever sort.
small_test() ->
    Terms = [[], {}, #{}, <<>>, <<"text">>, <<1:3>>, "text", [1 | 2], {a, [b], #{c => <<"d">>}}, 1.5, nested(45),
             -1 bsl 100, "\x{20ac}", <<"\x{20ac}"/utf8>>, <<255>>, self(), make_ref(), fun text/1],
    [?assertEqual(unicode:characters_to_binary(io_lib:format("~0tp", [T])), text(T)) || T <- Terms],
    ?assertEqual(<<"a text and 7">>, wasmtime_error:text("a ~ts and ~w", ["text", 7])),
    ?assertEqual(<<"text">>, wasmtime_error:text("~ts", [["t", [<<"e">>, $x]] ++ "t"])).

nested(Levels) -> lists:foldl(fun(_, Inner) -> [Inner] end, [], lists:seq(1, Levels)).

%% A large one is cut, wherever in it the size is: the work is bounded, and so is the message.
large_test_() ->
    Many = lists:duplicate(300_000, $a),
    Terms = [Many, binary:copy(<<"a">>, 5_000_000), binary:copy(<<"\x{20ac}"/utf8>>, 1_000_000),
             <<0:8_000_001>>, list_to_tuple(Many), maps:from_list([{N, N} || N <- lists:seq(1, 100_000)]),
             [{Many, Many}, Many], #{Many => Many}, {error, {Many, [x | Many]}}, [<<>> || _ <- Many],
             1 bsl 1_000_000, [-1 bsl 1_000_000], nested(300_000)],
    [fun() ->
         {Work, Text} = work(fun() -> text(Term) end),
         ?assert(byte_size(Text) < 2500),
         ?assert(Work < 200_000)
     end || Term <- Terms].

%% How much of a process's work it takes, in reductions: garbage is collected in none of it.
work(Fun) ->
    Self = self(),
    Pid = spawn_opt(fun() ->
        {_, Before} = process_info(self(), reductions),
        Result = Fun(),
        {_, After} = process_info(self(), reductions),
        Self ! {self(), {After - Before, Result}}
    end, [{min_heap_size, 4_000_000}]),
    receive {Pid, Work} -> Work end.

%% Text that is cut stays text, and ends with a whole character.
text_is_cut_as_text_test() ->
    [?assertMatch(<<"it said ", Euro:3/binary, _/binary>> when Euro =:= <<"\x{20ac}"/utf8>>,
                  wasmtime_error:text("it said ~ts", [Text]))
     || Text <- [binary:copy(<<"\x{20ac}"/utf8>>, 10_000), lists:duplicate(10_000, 16#20ac),
                 [[lists:duplicate(10_000, 16#20ac)], "and", [<<"more">>]]]].

%% A time limit that was shortened on the way is told as its caller gave it.
within_test() ->
    Error = wasmtime_error:new(trap, timeout, <<"the call did not end within 3 ms">>),
    ?assertEqual({error, Error#{message := <<"the call did not end within 500 ms">>}},
                 wasmtime_error:within({error, Error}, 500)),
    [?assertEqual(Result, wasmtime_error:within(Result, 500))
     || Result <- [{ok, [1]}, {error, Error#{class := host}}, {error, Error#{kind := interrupt}}]],
    ?assertEqual({error, Error}, wasmtime_error:within({error, Error}, infinity)).
