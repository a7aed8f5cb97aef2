%% @private
%% Names, paths and source text: from what a user writes to the binary that native code takes.
%% Rule: a NUL is refused, never a reason to cut.
-module(wasmtime_text).

-export([name/1, path/1, source/1]).

%% @doc A name as UTF-8. Lists hold bytes of UTF-8 or, when they are not that, code points.
-spec name(term()) -> {ok, binary()} | error.
name(Name) when is_binary(Name) ->
    case plain(Name) of
        true -> {ok, Name};
        false -> without_nul(utf8(Name))
    end;
name(Name) when is_list(Name) ->
    without_nul(utf8(Name));
name(_) ->
    error.

%% @doc A path of the host. A binary is taken as it is: such a path need not be UTF-8.
-spec path(term()) -> {ok, binary()} | error.
path(<<>>) -> error;
path([]) -> error;
path(Path) when is_binary(Path) -> without_nul({ok, Path});
path(Path) -> name(Path).

%% @doc Source text: as a name, but NUL is the parser's business.
-spec source(term()) -> {ok, binary()} | error.
source(Text) when is_binary(Text); is_list(Text) -> utf8(Text);
source(_) -> error.

%% Most names are short ASCII: they need no second look and no copy.
plain(<<C, Rest/binary>>) when C > 0, C < 128 -> plain(Rest);
plain(Rest) -> Rest =:= <<>>.

without_nul({ok, Text}) ->
    case binary:match(Text, <<0>>) of
        nomatch -> {ok, Text};
        _ -> error
    end;
without_nul(error) ->
    error.

utf8(Text) ->
    try iolist_to_binary(Text) of
        Bytes -> valid(Bytes, Text)
    catch
        error:badarg -> characters(Text)
    end.

valid(Bytes, Text) ->
    case unicode:characters_to_binary(Bytes) of
        Bytes -> {ok, Bytes};
        _ when is_list(Text) -> characters(Text);
        _ -> error
    end.

characters(Text) ->
    try unicode:characters_to_binary(Text) of
        Chars when is_binary(Chars) -> {ok, Chars};
        _ -> error
    catch
        error:badarg -> error
    end.
